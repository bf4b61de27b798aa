//===- Accesses.cpp - What a function's loops access ----------------------===//
#include "Accesses.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"

using namespace llvm;
using namespace spm;

namespace {

/// Nodes of an expression that is computed before a loop, at most. Chosen.
constexpr unsigned MostNodes = 160;

/// One memory operand of an instruction.
struct Operand {
  Instruction *At;
  Value *Pointer;
  /// Bytes of one access; a value where the length is one.
  uint64_t Size;
  Value *Length;
  bool Writes;
};

SmallVector<Operand, 2> operandsOf(Instruction &I, const DataLayout &DL) {
  if (Value *Pointer = getLoadStorePointerOperand(&I)) {
    const uint64_t Size = DL.getTypeStoreSize(getLoadStoreType(&I)).getKnownMinValue();
    return {{&I, Pointer, Size, nullptr, isa<StoreInst>(I)}};
  }
  // What was a loop, and became a call.
  SmallVector<Operand, 2> Of;
  if (auto *Set = dyn_cast<MemIntrinsic>(&I)) {
    Of.push_back({&I, Set->getRawDest(), 0, Set->getLength(), true});
    if (auto *Copy = dyn_cast<MemTransferInst>(&I))
      Of.push_back({&I, Copy->getRawSource(), 0, Copy->getLength(), false});
  }
  return Of;
}

class Finder {
public:
  Finder(Function &F, ScalarEvolution &SE, Nest &Loops, Before &Loads)
      : SE(SE), Loops(Loops), Loads(Loads), DL(F.getParent()->getDataLayout()), Expander(SE, DL, "spm") {}

  void find(const Operand &Of, Loop *Inner);

  Accesses Found;

private:
  const SCEV *divided(Count C) {
    return C.Divisor == 1 ? C.Sum : SE.getUDivExpr(C.Sum, SE.getConstant(C.Sum->getType(), C.Divisor));
  }
  bool isKnownBefore(const SCEV *E, const Loop &L) {
    return E->getExpressionSize() <= MostNodes && Expander.isSafeToExpandAt(E, L.getLoopPreheader()->getTerminator());
  }

  ScalarEvolution &SE;
  Nest &Loops;
  Before &Loads;
  const DataLayout &DL;
  SCEVExpander Expander;
};

void Finder::find(const Operand &Of, Loop *Inner) {
  auto refuse = [&](StringRef Why) { Found.Refused.push_back({Of.At, Why}); };
  Loops.begin();
  const SCEV *Address = SE.getSCEV(Of.Pointer);
  auto *Base = dyn_cast<SCEVUnknown>(SE.getPointerBase(Address));
  if (!Base)
    return refuse("its address has no base");
  if (isa<AllocaInst>(Base->getValue()))
    return; // The thread's own.
  const SCEV *Offset = SE.getMinusSCEV(Address, Base);
  if (isa<SCEVCouldNotCompute>(Offset))
    return refuse("its address is not known");
  const SCEV *First = Loops.plain(Offset);
  Type *Wide = First->getType();
  const SCEV *Size = Of.Length ? Loops.plain(SE.getSCEV(Of.Length)) : SE.getConstant(Wide, Of.Size);
  Range Bytes{First, SE.getAddExpr(First, Size)};
  Count Amount{Size, 1};
  Value *BaseValue = Base->getValue();

  std::optional<Access> Best;
  StringRef Why;
  const unsigned Depth = Inner->getLoopDepth();
  for (Loop *L = Inner; L; L = L->getParentLoop()) {
    Value *Before = Loads.value(*BaseValue, *L);
    auto Over = Before ? Loops.range(Bytes, *L) : std::nullopt;
    auto Sum = Over ? Loops.sum(Amount, *L) : std::nullopt;
    if (!Sum) {
      Why = Before ? Loops.why() : "its array changes in the loop";
      break;
    }
    BaseValue = Before;
    Bytes = *Over;
    Amount = *Sum;
    const SCEV *Total = divided(Amount), *BaseBefore = SE.getUnknown(BaseValue);
    if (!L->getLoopPreheader() || !isKnownBefore(Bytes.Least, *L) || !isKnownBefore(Bytes.Greatest, *L) ||
        !isKnownBefore(Total, *L) || !isKnownBefore(BaseBefore, *L)) {
      Why = "its range is not computable before the loop";
      continue;
    }
    Best = Access{Of.At, Of.Writes, L, Depth - L->getLoopDepth() + 1, Depth, "", BaseBefore, Bytes, Total};
  }
  if (!Best)
    return refuse(Why);
  if (Best->Hoisted < Depth)
    Best->Stopped = Why;
  Found.Known.push_back(*Best);
}

} // namespace

Accesses spm::accessesOf(Function &F, ScalarEvolution &SE, LoopInfo &LI, Nest &Nest, Before &Loads) {
  Finder All(F, SE, Nest, Loads);
  // Copies of loads are added meanwhile, before loops; they are no accesses of the program.
  SmallVector<std::pair<Operand, Loop *>, 16> Operands;
  for (BasicBlock &Block : F)
    if (Loop *Inner = LI.getLoopFor(&Block))
      for (Instruction &I : Block)
        for (const Operand &Of : operandsOf(I, F.getParent()->getDataLayout()))
          Operands.push_back({Of, Inner});
  for (auto &[Of, Inner] : Operands)
    All.find(Of, Inner);
  return std::move(All.Found);
}
