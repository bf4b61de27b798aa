//===- Pass.h - Selective page migration ----------------------------------===//
#ifndef COLOCATE_SPM_PASS_H
#define COLOCATE_SPM_PASS_H

#include "llvm/IR/PassManager.h"

namespace spm {

/// Calls the runtime before loops with the ranges of memory that they access, and how often.
///
/// The method is that of Piccoli et al., "Compiler support for selective page migration in NUMA architectures" (PACT 2014),
/// with scalar evolution in the place of its own symbolic analysis.
struct SelectivePageMigration : llvm::PassInfoMixin<SelectivePageMigration> {
  llvm::PreservedAnalyses run(llvm::Function &F, llvm::FunctionAnalysisManager &Analyses);
};

} // namespace spm

#endif
