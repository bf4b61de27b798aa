//===- Count.cpp - Counts what loops access, for tests --------------------===//
//
// At the same place as the pass: calls `touched` before each load and store in a loop, so that what the pass has announced can be
// compared with what is accessed.
//
//===----------------------------------------------------------------------===//
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Passes/PassPlugin.h"

using namespace llvm;

namespace {

struct CountAccesses : PassInfoMixin<CountAccesses> {
  PreservedAnalyses run(Function &F, FunctionAnalysisManager &Analyses) {
    auto &LI = Analyses.getResult<LoopAnalysis>(F);
    SmallVector<Instruction *, 32> All;
    for (BasicBlock &Block : F)
      if (LI.getLoopFor(&Block))
        for (Instruction &I : Block)
          if (getLoadStorePointerOperand(&I) || isa<MemIntrinsic>(I))
            All.push_back(&I);
    for (Instruction *I : All)
      count(*I);
    return All.empty() ? PreservedAnalyses::all() : PreservedAnalyses::none();
  }

  static void count(Instruction &I) {
    Module &M = *I.getModule();
    IRBuilder<> IR(&I);
    auto Touched = M.getOrInsertFunction("touched", IR.getVoidTy(), IR.getPtrTy(), IR.getInt64Ty());
    if (Value *Pointer = getLoadStorePointerOperand(&I)) {
      IR.CreateCall(Touched, {Pointer, IR.getInt64(M.getDataLayout().getTypeStoreSize(getLoadStoreType(&I)))});
      return;
    }
    auto &Set = cast<MemIntrinsic>(I);
    Value *Length = IR.CreateZExtOrTrunc(Set.getLength(), IR.getInt64Ty());
    IR.CreateCall(Touched, {Set.getRawDest(), Length});
    if (auto *Copy = dyn_cast<MemTransferInst>(&Set))
      IR.CreateCall(Touched, {Copy->getRawSource(), Length});
  }
};

} // namespace

extern "C" __attribute__((visibility("default"))) LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "spm-count", LLVM_VERSION_STRING, [](PassBuilder &Builder) {
            Builder.registerVectorizerStartEPCallback(
                [](FunctionPassManager &Passes, OptimizationLevel) { Passes.addPass(CountAccesses()); });
          }};
}
