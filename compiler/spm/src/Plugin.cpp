//===- Plugin.cpp - Where the pass is in the pipeline ---------------------===//
#include "Pass.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Passes/PassPlugin.h"

using namespace llvm;

/// Right before loops are vectorised: they are in their simplest form there, once each, and this place comes once in every
/// kind of build: in the compiler without and with full link-time optimisation, in the linker with the thin one.
extern "C" __attribute__((visibility("default"))) LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "spm", LLVM_VERSION_STRING, [](PassBuilder &Builder) {
            Builder.registerVectorizerStartEPCallback([](FunctionPassManager &Passes, OptimizationLevel) {
              Passes.addPass(spm::SelectivePageMigration());
            });
            Builder.registerPipelineParsingCallback(
                [](StringRef Name, FunctionPassManager &Passes, ArrayRef<PassBuilder::PipelineElement>) {
                  if (Name != "spm")
                    return false;
                  Passes.addPass(spm::SelectivePageMigration());
                  return true;
                });
          }};
}
