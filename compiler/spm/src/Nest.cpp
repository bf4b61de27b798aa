//===- Nest.cpp - Expressions over the iterations of loops ----------------===//
#include "Nest.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/Instructions.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace llvm;
using namespace spm;

namespace {

/// Expressions within expressions, at most. Chosen.
constexpr unsigned MostDepth = 12;
/// Bits of a constant number of iterations, at most. Chosen: of a loop with more its test says as much.
constexpr unsigned MostBits = 30;
/// Steps for one access, at most. Chosen.
constexpr unsigned MostSteps = 2000;
/// Values that a minimum search chooses from, at most. Chosen.
constexpr unsigned MostLeaves = 32;

/// A divisor that is never 0, so that a division can be computed before it is known to happen.
const SCEV *positive(ScalarEvolution &SE, const SCEV *Divisor) {
  return SE.isKnownPositive(Divisor) ? Divisor : SE.getSMaxExpr(Divisor, SE.getOne(Divisor->getType()));
}

/// Drops casts. No-wrap flags go, too: they were true of the narrow type.
class Plain : public SCEVRewriteVisitor<Plain> {
public:
  explicit Plain(ScalarEvolution &SE) : SCEVRewriteVisitor(SE), Wide(Type::getInt64Ty(SE.getContext())) {}

  const SCEV *visitConstant(const SCEVConstant *E) { return extended(E); }
  const SCEV *visitUnknown(const SCEVUnknown *E) { return extended(E); }
  const SCEV *visitPtrToIntExpr(const SCEVPtrToIntExpr *E) { return extended(E); }
  const SCEV *visitTruncateExpr(const SCEVTruncateExpr *E) { return visit(E->getOperand()); }
  const SCEV *visitZeroExtendExpr(const SCEVZeroExtendExpr *E) { return visit(E->getOperand()); }
  const SCEV *visitSignExtendExpr(const SCEVSignExtendExpr *E) { return visit(E->getOperand()); }
  const SCEV *visitAddRecExpr(const SCEVAddRecExpr *E) {
    auto Operands = visited(E);
    return SE.getAddRecExpr(Operands, E->getLoop(), SCEV::FlagAnyWrap);
  }
  const SCEV *visitUDivExpr(const SCEVUDivExpr *E) {
    return SE.getUDivExpr(visit(E->getLHS()), positive(SE, visit(E->getRHS())));
  }
  const SCEV *visitUMaxExpr(const SCEVUMaxExpr *E) {
    auto Operands = visited(E);
    return SE.getSMaxExpr(Operands);
  }
  const SCEV *visitUMinExpr(const SCEVUMinExpr *E) {
    auto Operands = visited(E);
    return SE.getSMinExpr(Operands);
  }
  const SCEV *visitSequentialUMinExpr(const SCEVSequentialUMinExpr *E) {
    auto Operands = visited(E);
    return SE.getSMinExpr(Operands);
  }

private:
  const SCEV *extended(const SCEV *E) { return SE.getTruncateOrSignExtend(E, Wide); }
  SmallVector<const SCEV *, 4> visited(const SCEVNAryExpr *E) {
    SmallVector<const SCEV *, 4> Operands;
    for (const SCEV *Operand : E->operands())
      Operands.push_back(visit(Operand));
    return Operands;
  }

  Type *Wide;
};

/// Puts what loads give before a loop in the place of what they give in it.
class BeforeLoop : public SCEVRewriteVisitor<BeforeLoop> {
public:
  BeforeLoop(ScalarEvolution &SE, Before &Loads, const Loop &L) : SCEVRewriteVisitor(SE), Loads(Loads), L(L) {}

  const SCEV *visitUnknown(const SCEVUnknown *E) {
    auto *Here = dyn_cast<Instruction>(E->getValue());
    if (!Here || !L.contains(Here))
      return E;
    Value *There = Loads.value(*Here, L);
    return There ? SE.getSCEV(There) : E;
  }

private:
  Before &Loads;
  const Loop &L;
};

} // namespace

void Nest::begin() { Left = MostSteps; }

const SCEV *Nest::plain(const SCEV *E) { return Plain(SE).visit(E); }

const SCEV *Nest::before(const SCEV *E, const Loop &L) {
  return SE.isLoopInvariant(E, &L) ? E : BeforeLoop(SE, Loads, L).visit(E);
}

const SCEV *Nest::least(const SCEV *A, const SCEV *B) {
  if (SE.isKnownPredicate(ICmpInst::ICMP_SLE, A, B))
    return A;
  return SE.isKnownPredicate(ICmpInst::ICMP_SLE, B, A) ? B : SE.getSMinExpr(A, B);
}

const SCEV *Nest::greatest(const SCEV *A, const SCEV *B) {
  if (SE.isKnownPredicate(ICmpInst::ICMP_SLE, A, B))
    return B;
  return SE.isKnownPredicate(ICmpInst::ICMP_SLE, B, A) ? A : SE.getSMaxExpr(A, B);
}

int Nest::sign(const SCEV *E, const Loop &L) {
  // Nothing overflows: the sign of a product is that of its factors.
  if (auto *Product = dyn_cast<SCEVMulExpr>(E)) {
    int Of = 1;
    for (const SCEV *Factor : Product->operands())
      Of *= sign(Factor, L);
    return Of;
  }
  const SCEV *Guarded = SE.applyLoopGuards(E, &L);
  if (SE.isKnownNonNegative(Guarded))
    return 1;
  if (SE.isKnownNonPositive(Guarded))
    return -1;
  return SE.isLoopEntryGuardedByCond(&L, ICmpInst::ICMP_SGE, E, SE.getZero(E->getType())) ? 1 : 0;
}

Range Nest::between(const SCEV *A, const SCEV *B, int Direction) {
  if (Direction > 0)
    return {A, B};
  if (Direction < 0)
    return {B, A};
  return {least(A, B), greatest(A, B)};
}

//===- Repetitions --------------------------------------------------------===//

const SCEV *Nest::repetitions(const Loop &L) {
  auto [Known, IsNew] = Repetitions.try_emplace(&L, nullptr);
  if (!IsNew)
    return Known->second;
  const SCEV *Times = SE.getBackedgeTakenCount(&L);
  if (isa<SCEVCouldNotCompute>(Times))
    Times = SE.getSymbolicMaxBackedgeTakenCount(&L); // It has a break.
  auto *Constant = dyn_cast<SCEVConstant>(Times);
  // The most that a counter's type can count says nothing.
  const bool IsKnown = !isa<SCEVCouldNotCompute>(Times) && !(Constant && Constant->getAPInt().getActiveBits() > MostBits);
  Times = IsKnown ? plain(Times) : repetitionsByTests(L);
  return Repetitions[&L] = Times;
}

/// Of a loop whose bound a store in it may change.
const SCEV *Nest::repetitionsByTests(const Loop &L) {
  SmallVector<BasicBlock *, 4> Exiting;
  L.getExitingBlocks(Exiting);
  for (BasicBlock *Block : Exiting) {
    auto *Branch = dyn_cast<BranchInst>(Block->getTerminator());
    auto *Test = Branch && Branch->isConditional() ? dyn_cast<ICmpInst>(Branch->getCondition()) : nullptr;
    if (!Test || !Test->getOperand(0)->getType()->isIntegerTy())
      continue;
    auto Stays = L.contains(Branch->getSuccessor(0)) ? Test->getPredicate() : Test->getInversePredicate();
    const SCEV *A = before(plain(SE.getSCEV(Test->getOperand(0))), L);
    const SCEV *B = before(plain(SE.getSCEV(Test->getOperand(1))), L);
    if (const SCEV *Times = repetitionsByTest(L, Stays, A, B))
      return Times;
    if (const SCEV *Times = repetitionsByTest(L, ICmpInst::getSwappedPredicate(Stays), B, A))
      return Times;
  }
  return nullptr;
}

/// For how many iterations a counter is on the side of its bound where the loop is not left.
const SCEV *Nest::repetitionsByTest(const Loop &L, CmpInst::Predicate Stays, const SCEV *Counter, const SCEV *Bound) {
  auto *Recurrence = dyn_cast<SCEVAddRecExpr>(Counter);
  if (!Recurrence || Recurrence->getLoop() != &L || !Recurrence->isAffine() || !SE.isLoopInvariant(Bound, &L))
    return nullptr;
  auto *Step = dyn_cast<SCEVConstant>(Recurrence->getStepRecurrence(SE));
  if (!Step || Step->isZero())
    return nullptr;
  const bool Rises = !Step->getAPInt().isNegative();
  const SCEV *One = SE.getOne(Bound->getType());
  switch (Stays) {
  case CmpInst::ICMP_SLE:
  case CmpInst::ICMP_ULE:
    Bound = SE.getAddExpr(Bound, One);
    [[fallthrough]];
  case CmpInst::ICMP_SLT:
  case CmpInst::ICMP_ULT:
    if (!Rises)
      return nullptr;
    break;
  case CmpInst::ICMP_SGE:
  case CmpInst::ICMP_UGE:
    Bound = SE.getMinusSCEV(Bound, One);
    [[fallthrough]];
  case CmpInst::ICMP_SGT:
  case CmpInst::ICMP_UGT:
    if (Rises)
      return nullptr;
    break;
  case CmpInst::ICMP_NE:
    break;
  default:
    return nullptr;
  }
  const SCEV *Start = Recurrence->getStart();
  const SCEV *Way = Rises ? SE.getMinusSCEV(Bound, Start) : SE.getMinusSCEV(Start, Bound);
  const SCEV *Size = SE.getConstant(Step->getAPInt().abs());
  const SCEV *Up = SE.getAddExpr(Way, SE.getMinusSCEV(Size, One));
  return SE.getUDivExpr(SE.getSMaxExpr(Up, SE.getZero(Up->getType())), Size);
}

//===- Counts -------------------------------------------------------------===//

std::optional<Count> Nest::sum(Count C, const Loop &L) {
  const SCEV *Times = repetitions(L);
  if (!Times)
    return no("its number of iterations is not known");
  Type *Wide = Times->getType();
  const SCEV *Trips = SE.getAddExpr(Times, SE.getOne(Wide));
  const SCEV *E = before(C.Sum, L);
  if (SE.isLoopInvariant(E, &L))
    return Count{SE.getMulExpr(E, Trips), C.Divisor};
  auto *Recurrence = dyn_cast<SCEVAddRecExpr>(E);
  constexpr uint64_t Factorials[] = {1, 1, 2, 6, 24};
  if (Recurrence && Recurrence->getLoop() == &L && Recurrence->getNumOperands() < std::size(Factorials)) {
    // The sum of {c0,+,c1,+,c2} over n iterations is c0 n + c1 n(n-1)/2 + c2 n(n-1)(n-2)/6.
    const uint64_t Divisor = Factorials[Recurrence->getNumOperands()];
    const SCEV *Sum = SE.getZero(Wide), *Falling = Trips;
    for (unsigned At = 0; At < Recurrence->getNumOperands(); ++At) {
      const SCEV *Factor = SE.getConstant(Wide, Divisor / Factorials[At + 1]);
      Sum = SE.getAddExpr(Sum, SE.getMulExpr(Factor, Recurrence->getOperand(At), Falling));
      Falling = SE.getMulExpr(Falling, SE.getMinusSCEV(Trips, SE.getConstant(Wide, At + 1)));
    }
    return Count{Sum, C.Divisor * Divisor};
  }
  // At most so often.
  auto Most = range(E, L);
  if (!Most)
    return std::nullopt;
  return Count{SE.getMulExpr(Most->Greatest, Trips), C.Divisor};
}

//===- Ranges -------------------------------------------------------------===//

std::optional<Range> Nest::range(Range R, const Loop &L) {
  auto Least = range(R.Least, L);
  auto Greatest = Least ? range(R.Greatest, L) : std::nullopt;
  if (!Greatest)
    return std::nullopt;
  return Range{Least->Least, Greatest->Greatest};
}

std::optional<Range> Nest::range(const SCEV *E, const Loop &L) {
  // Values may be made of each other.
  if (Depth >= MostDepth || Left == 0)
    return no("its address is too long an expression");
  --Left;
  SaveAndRestore<unsigned> Deeper(Depth, Depth + 1);
  E = before(E, L);
  if (SE.isLoopInvariant(E, &L))
    return Range{E, E};
  switch (E->getSCEVType()) {
  case scAddRecExpr:
    return ofRecurrence(cast<SCEVAddRecExpr>(E), L);
  case scMulExpr:
    return ofProduct(cast<SCEVMulExpr>(E), L);
  case scAddExpr:
  case scSMaxExpr:
  case scSMinExpr: {
    SmallVector<const SCEV *, 4> Least, Greatest;
    for (const SCEV *Operand : cast<SCEVNAryExpr>(E)->operands()) {
      auto Of = range(Operand, L);
      if (!Of)
        return std::nullopt;
      Least.push_back(Of->Least);
      Greatest.push_back(Of->Greatest);
    }
    if (E->getSCEVType() == scAddExpr)
      return Range{SE.getAddExpr(Least), SE.getAddExpr(Greatest)};
    if (E->getSCEVType() == scSMaxExpr)
      return Range{SE.getSMaxExpr(Least), SE.getSMaxExpr(Greatest)};
    return Range{SE.getSMinExpr(Least), SE.getSMinExpr(Greatest)};
  }
  case scUDivExpr: {
    auto *Division = cast<SCEVUDivExpr>(E);
    const SCEV *Divisor = before(Division->getRHS(), L);
    if (!SE.isLoopInvariant(Divisor, &L))
      return no("its address is divided by what changes in the loop");
    auto Of = range(Division->getLHS(), L);
    if (!Of)
      return std::nullopt;
    return Range{SE.getUDivExpr(Of->Least, Divisor), SE.getUDivExpr(Of->Greatest, Divisor)};
  }
  case scSignExtend:
  case scZeroExtend:
  case scTruncate: { // Around a value that is narrower.
    auto Of = range(cast<SCEVCastExpr>(E)->getOperand(), L);
    if (!Of)
      return std::nullopt;
    return Range{plain(Of->Least), plain(Of->Greatest)};
  }
  case scUnknown: {
    Value *V = cast<SCEVUnknown>(E)->getValue();
    auto *Division = dyn_cast<BinaryOperator>(V);
    if (Division && (Division->getOpcode() == Instruction::SDiv || Division->getOpcode() == Instruction::SRem))
      return ofDivision(*Division, L);
    return ofLeaves(V, L);
  }
  default:
    return no("its address is no expression that has a range");
  }
}

std::optional<Range> Nest::ofRecurrence(const SCEVAddRecExpr *E, const Loop &L) {
  if (E->getLoop() != &L) {
    // The last value of a loop inside this one.
    if (!L.contains(E->getLoop()))
      return no("its address comes from another loop");
    auto Inside = ofRecurrence(E, *E->getLoop());
    return Inside ? range(*Inside, L) : std::nullopt;
  }
  const SCEV *Times = repetitions(L);
  if (!Times)
    return no("its number of iterations is not known");
  if (E->isAffine()) {
    const SCEV *Step = E->getStepRecurrence(SE);
    const SCEV *Last = SE.getAddExpr(E->getStart(), SE.getMulExpr(Step, Times));
    return between(E->getStart(), Last, sign(Step, L));
  }
  for (const SCEV *Operand : drop_begin(E->operands()))
    if (sign(Operand, L) <= 0)
      return no("its address may rise and fall");
  return Range{E->getStart(), E->evaluateAtIteration(Times, SE)};
}

std::optional<Range> Nest::ofProduct(const SCEVMulExpr *E, const Loop &L) {
  SmallVector<const SCEV *, 4> Fixed;
  const SCEV *Varies = nullptr;
  for (const SCEV *Operand : E->operands()) {
    const bool IsFixed = SE.isLoopInvariant(Operand, &L);
    if (!IsFixed && Varies)
      return no("its address is a product of two values that change in the loop");
    if (IsFixed)
      Fixed.push_back(Operand);
    else
      Varies = Operand;
  }
  auto Of = range(Varies, L);
  if (!Of)
    return std::nullopt;
  const SCEV *Factor = SE.getMulExpr(Fixed);
  return between(SE.getMulExpr(Factor, Of->Least), SE.getMulExpr(Factor, Of->Greatest), sign(Factor, L));
}

/// Of a signed division or its remainder, of numbers that are not negative: so the counters of collapsed loops come about.
std::optional<Range> Nest::ofDivision(const BinaryOperator &Division, const Loop &L) {
  const SCEV *Divisor = before(plain(SE.getSCEV(Division.getOperand(1))), L);
  if (!SE.isLoopInvariant(Divisor, &L))
    return no("its address is divided by what changes in the loop");
  Divisor = positive(SE, Divisor);
  const SCEV *Zero = SE.getZero(Divisor->getType()), *One = SE.getOne(Divisor->getType());
  if (Division.getOpcode() == Instruction::SRem)
    return Range{Zero, SE.getMinusSCEV(Divisor, One)};
  auto Of = range(plain(SE.getSCEV(Division.getOperand(0))), L);
  if (!Of)
    return std::nullopt;
  return Range{SE.getUDivExpr(Of->Least, Divisor), SE.getUDivExpr(Of->Greatest, Divisor)};
}

/// Of a value that is one of several, as the place of a minimum is.
std::optional<Range> Nest::ofLeaves(Value *V, const Loop &L) {
  SmallPtrSet<Value *, 8> Seen;
  SmallVector<Value *, 8> Open{V}, Leaves;
  while (!Open.empty()) {
    Value *Next = Open.pop_back_val();
    if (!Seen.insert(Next).second)
      continue;
    if (Seen.size() > MostLeaves)
      return no("its address is one of too many values");
    auto *Here = dyn_cast<Instruction>(Next);
    const bool IsInside = Here && L.contains(Here) && isa<SCEVUnknown>(SE.getSCEV(Next));
    if (auto *Phi = dyn_cast<PHINode>(Next); Phi && IsInside)
      Open.append(Phi->op_begin(), Phi->op_end());
    else if (auto *Select = dyn_cast<SelectInst>(Next); Select && IsInside)
      Open.append({Select->getTrueValue(), Select->getFalseValue()});
    else if (IsInside)
      return isa<LoadInst>(Next) ? no("its address is loaded in the loop")
             : isa<CallBase>(Next) ? no("its address is the result of a call")
                                   : no("its address is not an expression of the loops' counters");
    else
      Leaves.push_back(Next);
  }
  std::optional<Range> All;
  for (Value *Leaf : Leaves) {
    auto Of = ofLeaf(Leaf, L);
    if (!Of)
      return std::nullopt;
    All = All ? Range{least(All->Least, Of->Least), greatest(All->Greatest, Of->Greatest)} : *Of;
  }
  return All ? All : no("its address has no value");
}

/// Of a value that may come from a loop inside this one.
std::optional<Range> Nest::ofLeaf(Value *V, const Loop &L) {
  const SCEV *E = plain(SE.getSCEV(V));
  std::optional<Range> All = Range{E, E};
  auto *Here = dyn_cast<Instruction>(V);
  const Loop *Inner = Here ? LI.getLoopFor(Here->getParent()) : nullptr;
  for (; All && Inner && Inner != &L && L.contains(Inner); Inner = Inner->getParentLoop())
    All = range(*All, *Inner);
  if (!All)
    return std::nullopt;
  auto Least = range(All->Least, L);
  auto Greatest = Least ? range(All->Greatest, L) : std::nullopt;
  if (!Greatest)
    return std::nullopt;
  return Range{Least->Least, Greatest->Greatest};
}
