//===- Calls.h - Calls of the runtime before loops ------------------------===//
#ifndef COLOCATE_SPM_CALLS_H
#define COLOCATE_SPM_CALLS_H

#include "Accesses.h"

namespace spm {

/// What is accessed of one array in a loop: the runtime is called with this before it.
struct Region {
  llvm::Loop *Before;
  const llvm::SCEV *Base;
  Range Bytes;
  const llvm::SCEV *Amount;
  bool Writes;
  /// One of the instructions.
  llvm::Instruction *At;
};

/// Accesses to the same array before the same loop become one region if their ranges begin or end a known distance apart: others may be
/// far from each other, as the row of a pivot from those that it is subtracted from. Regions that are smaller than a page for certain are left out.
std::vector<Region> regionsOf(const Accesses &All, llvm::ScalarEvolution &SE, Nest &Nest);

/// Calls the runtime with regions that are all before the same loop:
///   if (spm_is_on)
///     spm_access(void *base, int64_t begin, int64_t end, int64_t bytes, struct spm_site *site), for each
/// So where there is nothing to do not even the arguments are computed.
void callBefore(llvm::ArrayRef<Region> All, llvm::ScalarEvolution &SE, llvm::DominatorTree &DT, llvm::LoopInfo &LI);

} // namespace spm

#endif
