//===- Calls.cpp - Calls of the runtime before loops ----------------------===//
#include "Calls.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Analysis/DomTreeUpdater.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"

using namespace llvm;
using namespace spm;

namespace {

/// The smallest page of any machine.
constexpr uint64_t Page = 4096;
/// The form of `struct spm_site`. The runtime ignores sites of others.
constexpr uint32_t Version = 1;

/// struct spm_site { uint32_t version, line; const char *function, *file; void *of_the_runtime; }
Constant *siteOf(Function &F, const Region &Of) {
  Module &M = *F.getParent();
  LLVMContext &C = M.getContext();
  IRBuilder<> IR(C);
  auto text = [&](StringRef Text) -> Constant * {
    auto *Data = ConstantDataArray::getString(C, Text);
    auto *Global = new GlobalVariable(M, Data->getType(), true, GlobalValue::PrivateLinkage, Data, "spm.text");
    Global->setUnnamedAddr(GlobalValue::UnnamedAddr::Global);
    return Global;
  };
  DebugLoc Place = Of.Before->getStartLoc();
  DISubprogram *Sub = F.getSubprogram();
  Constant *Fields[] = {
      IR.getInt32(Version),
      IR.getInt32(Place ? Place.getLine() : 0),
      text(Sub ? Sub->getName() : F.getName()),
      text(Sub ? Sub->getFilename() : StringRef(M.getSourceFileName())),
      Constant::getNullValue(IR.getPtrTy()),
  };
  auto *Site = ConstantStruct::getAnon(Fields);
  return new GlobalVariable(M, Site->getType(), false, GlobalValue::PrivateLinkage, Site, "spm.site");
}

/// It has no effect that the compiler could see.
FunctionCallee runtimeOf(Module &M) {
  LLVMContext &C = M.getContext();
  IRBuilder<> IR(C);
  Type *Pointer = IR.getPtrTy(), *Wide = IR.getInt64Ty();
  FunctionCallee Runtime = M.getOrInsertFunction("spm_access", IR.getVoidTy(), Pointer, Wide, Wide, Wide, Pointer);
  if (auto *F = dyn_cast<Function>(Runtime.getCallee())) {
    F->setDoesNotThrow();
    F->setWillReturn();
    F->setOnlyAccessesInaccessibleMemory();
    F->addFnAttr(Attribute::NoFree);
    F->addFnAttr(Attribute::NoSync);
    F->addFnAttr(Attribute::NoCallback);
  }
  return Runtime;
}

} // namespace

std::vector<Region> spm::regionsOf(const Accesses &All, ScalarEvolution &SE, Nest &Nest) {
  auto isNear = [&](const SCEV *One, const SCEV *Other) { return isa<SCEVConstant>(SE.getMinusSCEV(One, Other)); };
  std::vector<Region> Merged;
  for (const Access &Of : All.Known) {
    auto At = llvm::find_if(Merged, [&](const Region &Into) {
      return Into.Before == Of.Before && Into.Base == Of.Base &&
             (isNear(Into.Bytes.Least, Of.Bytes.Least) || isNear(Into.Bytes.Greatest, Of.Bytes.Greatest));
    });
    if (At == Merged.end()) {
      Merged.push_back({Of.Before, Of.Base, Of.Bytes, Of.Amount, Of.Writes, Of.At});
      continue;
    }
    Region &Into = *At;
    Into.Bytes = {Nest.least(Into.Bytes.Least, Of.Bytes.Least), Nest.greatest(Into.Bytes.Greatest, Of.Bytes.Greatest)};
    Into.Amount = SE.getAddExpr(Into.Amount, Of.Amount);
    Into.Writes |= Of.Writes;
  }
  std::vector<Region> Regions;
  for (const Region &Of : Merged) {
    auto *Size = dyn_cast<SCEVConstant>(SE.getMinusSCEV(Of.Bytes.Greatest, Of.Bytes.Least));
    if (!Size || Size->getAPInt().sge(Page))
      Regions.push_back(Of);
  }
  return Regions;
}

void spm::callBefore(ArrayRef<Region> All, ScalarEvolution &SE, DominatorTree &DT, LoopInfo &LI) {
  Loop &L = *All.front().Before;
  Instruction *Before = L.getLoopPreheader()->getTerminator();
  Function &F = *Before->getFunction();
  Module &M = *F.getParent();
  IRBuilder<> IR(Before);
  IR.SetCurrentDebugLocation(L.getStartLoc());
  Value *Flag = IR.CreateLoad(IR.getInt32Ty(), M.getOrInsertGlobal("spm_is_on", IR.getInt32Ty()));
  DomTreeUpdater Updater(DT, DomTreeUpdater::UpdateStrategy::Eager);
  MDNode *Unlikely = MDBuilder(M.getContext()).createBranchWeights(1, 1000);
  Instruction *Then = SplitBlockAndInsertIfThen(IR.CreateIsNotNull(Flag), Before, /*Unreachable=*/false, Unlikely, &Updater, &LI);
  SCEVExpander Expander(SE, M.getDataLayout(), "spm");
  auto value = [&](const SCEV *E) { return Expander.expandCodeFor(E, E->getType(), Then); };
  for (const Region &Of : All) {
    Value *Arguments[] = {value(Of.Base), value(Of.Bytes.Least), value(Of.Bytes.Greatest), value(Of.Amount), siteOf(F, Of)};
    IR.SetInsertPoint(Then);
    IR.SetCurrentDebugLocation(L.getStartLoc());
    IR.CreateCall(runtimeOf(M), Arguments);
  }
}
