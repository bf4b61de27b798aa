//===- Accesses.h - What a function's loops access ------------------------===//
#ifndef COLOCATE_SPM_ACCESSES_H
#define COLOCATE_SPM_ACCESSES_H

#include "Nest.h"

namespace spm {

/// What one instruction accesses in the loops around it, from the outermost one before which that is known.
struct Access {
  llvm::Instruction *At;
  bool Writes;
  /// The loop before which it is known, and how many of how many loops that leaves.
  llvm::Loop *Before;
  unsigned Hoisted, Depth;
  /// Why not before the next loop around that, if there is one.
  llvm::StringRef Stopped;
  const llvm::SCEV *Base;
  /// Distances from the base in bytes, the end exclusive.
  Range Bytes;
  /// Bytes that are read or written in all, each as often as it is.
  const llvm::SCEV *Amount;
};

/// An instruction of whose accesses nothing is known.
struct Refusal {
  llvm::Instruction *At;
  llvm::StringRef Why;
};

/// What the loops of a function access.
struct Accesses {
  std::vector<Access> Known;
  std::vector<Refusal> Refused;
};

Accesses accessesOf(llvm::Function &F, llvm::ScalarEvolution &SE, llvm::LoopInfo &LI, Nest &Nest, Before &Loads);

} // namespace spm

#endif
