//===- Before.cpp - Loads in a loop, repeated before it -------------------===//
#include "Before.h"
#include "llvm/Analysis/Loads.h"
#include "llvm/Analysis/MustExecute.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/Instructions.h"
#include "llvm/Transforms/Utils/Local.h"

using namespace llvm;
using namespace spm;

Value *Before::value(Value &V, const Loop &L) {
  if (L.isLoopInvariant(&V))
    return &V;
  if (!L.getLoopPreheader())
    return nullptr;
  auto Original = Originals.find(&V);
  Value *Of = Original == Originals.end() ? &V : Original->second;
  auto Key = std::make_pair(&L, Of);
  if (auto Known = Copies.find(Key); Known != Copies.end())
    return Known->second;
  Copies[Key] = nullptr; // For expressions that lead back to themselves.
  Value *Copy = nullptr;
  if (auto *Load = dyn_cast<LoadInst>(Of))
    Copy = copyOfLoad(*Load, L);
  else if (auto *Phi = dyn_cast<PHINode>(Of))
    Copy = startOfPhi(*Phi, L);
  else if (isa<GetElementPtrInst>(Of) || isa<CastInst>(Of))
    Copy = copyOfAddress(*cast<Instruction>(Of), L);
  if (Copy)
    Originals[Copy] = Of;
  return Copies[Key] = Copy;
}

Value *Before::copyOfLoad(LoadInst &Load, const Loop &L) {
  if (!Load.isSimple())
    return nullptr;
  Value *Address = value(*Load.getPointerOperand(), L);
  if (Address && !isSafe(Load, *Address, L))
    Address = addressIfLoaded(Load, *Address, L);
  if (!Address)
    return nullptr;
  // Without metadata: what it promises may be true in the loop alone.
  auto *Copy = new LoadInst(Load.getType(), Address, Load.getName() + ".before", /*isVolatile=*/false, Load.getAlign(),
                            L.getLoopPreheader()->getTerminator());
  Made.push_back(Copy);
  return Copy;
}

/// Of a value that is loaded anew, from an address that stays the same.
Value *Before::startOfPhi(PHINode &Phi, const Loop &L) {
  SmallPtrSet<Value *, 8> Seen;
  SmallVector<Value *, 8> Open{&Phi};
  Value *Start = nullptr;
  while (!Open.empty()) {
    Value *Next = Open.pop_back_val();
    if (!Seen.insert(Next).second)
      continue;
    auto *Here = dyn_cast<Instruction>(Next);
    if (!Here || !L.contains(Here)) {
      // Two starts would be two values.
      if (Start && Start != Next)
        return nullptr;
      Start = Next;
    } else if (auto *Inner = dyn_cast<PHINode>(Here)) {
      Open.append(Inner->op_begin(), Inner->op_end());
    } else if (auto *Load = dyn_cast<LoadInst>(Here); !Load || !L.isLoopInvariant(Load->getPointerOperand())) {
      return nullptr;
    }
  }
  return Start;
}

Value *Before::copyOfAddress(Instruction &Address, const Loop &L) {
  SmallVector<Value *, 4> Operands;
  for (Value *Operand : Address.operands()) {
    Operands.push_back(value(*Operand, L));
    if (!Operands.back())
      return nullptr;
  }
  Instruction *Copy = Address.clone();
  Copy->dropUnknownNonDebugMetadata();
  Copy->setDebugLoc(DebugLoc());
  for (unsigned At = 0; At < Operands.size(); ++At)
    Copy->setOperand(At, Operands[At]);
  Copy->insertBefore(L.getLoopPreheader()->getTerminator());
  Made.push_back(Copy);
  return Copy;
}

bool Before::isSafe(const LoadInst &Load, Value &Address, const Loop &L) {
  const Instruction *There = L.getLoopPreheader()->getTerminator();
  return isDereferenceableAndAlignedPointer(&Address, Load.getType(), Load.getAlign(), DL, There) ||
         isSameBefore(Load, L);
}

/// The address where the first iteration loads from it, which is decided before the loop; else that of nothing.
Value *Before::addressIfLoaded(LoadInst &Load, Value &Address, const Loop &L) {
  constexpr uint64_t Most = 16;
  BasicBlock *There = Load.getParent(), *From = There->getSinglePredecessor();
  auto *Branch = From ? dyn_cast<BranchInst>(From->getTerminator()) : nullptr;
  if (!Branch || !Branch->isConditional() || !L.isLoopInvariant(Branch->getCondition()) || !isExecuted(*Branch, L) ||
      DL.getTypeStoreSize(Load.getType()).getKnownMinValue() > Most || Load.getAlign().value() > Most)
    return nullptr;
  for (const Instruction &I : make_range(There->begin(), Load.getIterator()))
    if (!isGuaranteedToTransferExecutionToSuccessor(&I))
      return nullptr;
  if (!isUnchanged(Load, L))
    return nullptr;
  Module &M = *There->getParent()->getParent();
  GlobalVariable *Nothing = M.getGlobalVariable("spm.nothing", /*AllowInternal=*/true);
  if (!Nothing) {
    auto *Zero = ConstantAggregateZero::get(ArrayType::get(Type::getInt8Ty(M.getContext()), Most));
    Nothing = new GlobalVariable(M, Zero->getType(), true, GlobalValue::PrivateLinkage, Zero, "spm.nothing");
    Nothing->setAlignment(Align(Most));
  }
  const bool IsThen = Branch->getSuccessor(0) == There;
  auto *Of = SelectInst::Create(Branch->getCondition(), IsThen ? &Address : Nothing, IsThen ? Nothing : &Address, "spm.address",
                                L.getLoopPreheader()->getTerminator());
  Made.push_back(Of);
  return Of;
}

/// Whether the first iteration loads it for certain, and before it writes anything that may be there.
bool Before::isSameBefore(const LoadInst &Load, const Loop &L) { return isExecuted(Load, L) && isUnchanged(Load, L); }

bool Before::isExecuted(const Instruction &I, const Loop &L) {
  SimpleLoopSafetyInfo Safety;
  Safety.computeLoopSafetyInfo(&L);
  return L.contains(&I) && Safety.isGuaranteedToExecute(I, &DT, &L);
}

/// Whether nothing in the loop writes what may be there before the first iteration loads it.
bool Before::isUnchanged(const LoadInst &Load, const Loop &L) {
  MemorySSA &Memory = MSSA();
  MemoryUseOrDef *Use = Memory.getMemoryAccess(&Load);
  if (!Use)
    return false;
  // Upwards over everything that may write, to what the loop begins with.
  MemoryAccess *Definition = Use->getDefiningAccess();
  return !L.contains(Definition->getBlock()) ||
         (isa<MemoryPhi>(Definition) && Definition->getBlock() == L.getHeader());
}

void Before::removeUnused() {
  // Later ones use earlier ones.
  for (auto It = Made.rbegin(); It != Made.rend(); ++It)
    if (Value *Copy = *It)
      RecursivelyDeleteTriviallyDeadInstructions(Copy);
}
