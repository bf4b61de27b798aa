//===- Nest.h - Expressions over the iterations of loops ------------------===//
#ifndef COLOCATE_SPM_NEST_H
#define COLOCATE_SPM_NEST_H

#include "Before.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include <optional>

namespace spm {

/// The least and the greatest value of an expression.
struct Range {
  const llvm::SCEV *Least;
  const llvm::SCEV *Greatest;
};

/// How often something happens: Sum / Divisor. So sums over triangles stay polynomials, which can be summed again.
struct Count {
  const llvm::SCEV *Sum;
  uint64_t Divisor;
};

/// Ranges and counts of expressions over all iterations of a loop, in terms that are known before it.
///
/// They are hints, on which no result of the program depends. So all is computed in 64 bits as if nothing overflowed, a loop
/// that can be left early counts as if it ran to its end, and what the loop may change counts as it was before.
class Nest {
public:
  Nest(llvm::ScalarEvolution &SE, llvm::LoopInfo &LI, Before &Loads) : SE(SE), LI(LI), Loads(Loads) {}

  /// Before the questions about one access, whose answers may take so many steps in all.
  void begin();

  /// An expression in 64 bits, without casts.
  const llvm::SCEV *plain(const llvm::SCEV *E);

  /// Least and greatest values over all iterations.
  std::optional<Range> range(const llvm::SCEV *E, const llvm::Loop &L);
  std::optional<Range> range(Range R, const llvm::Loop &L);

  /// How often something happens in all iterations that happens so often in one.
  std::optional<Count> sum(Count C, const llvm::Loop &L);

  /// The same expression before the loop: invariant in it, if that can be.
  const llvm::SCEV *before(const llvm::SCEV *E, const llvm::Loop &L);

  const llvm::SCEV *least(const llvm::SCEV *A, const llvm::SCEV *B);
  const llvm::SCEV *greatest(const llvm::SCEV *A, const llvm::SCEV *B);

  /// Why the last result was none.
  llvm::StringRef why() const { return Why; }

private:
  /// How often the loop begins again.
  const llvm::SCEV *repetitions(const llvm::Loop &L);
  const llvm::SCEV *repetitionsByTests(const llvm::Loop &L);
  const llvm::SCEV *repetitionsByTest(const llvm::Loop &L, llvm::CmpInst::Predicate Stays, const llvm::SCEV *Counter,
                                      const llvm::SCEV *Bound);
  std::optional<Range> ofRecurrence(const llvm::SCEVAddRecExpr *E, const llvm::Loop &L);
  std::optional<Range> ofProduct(const llvm::SCEVMulExpr *E, const llvm::Loop &L);
  std::optional<Range> ofDivision(const llvm::BinaryOperator &Division, const llvm::Loop &L);
  std::optional<Range> ofLeaves(llvm::Value *V, const llvm::Loop &L);
  std::optional<Range> ofLeaf(llvm::Value *V, const llvm::Loop &L);
  /// 1 if never negative in the loop, -1 if never positive, else 0.
  int sign(const llvm::SCEV *E, const llvm::Loop &L);
  Range between(const llvm::SCEV *A, const llvm::SCEV *B, int Direction);
  std::nullopt_t no(llvm::StringRef Reason) {
    Why = Reason;
    return std::nullopt;
  }

  llvm::ScalarEvolution &SE;
  llvm::LoopInfo &LI;
  Before &Loads;
  llvm::DenseMap<const llvm::Loop *, const llvm::SCEV *> Repetitions;
  llvm::StringRef Why;
  unsigned Depth = 0, Left = 0;
};

} // namespace spm

#endif
