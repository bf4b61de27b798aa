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

/// Accesses to the same array before the same loop become one region. Regions that are smaller than a page for certain are
/// left out.
std::vector<Region> regionsOf(const Accesses &All, llvm::ScalarEvolution &SE, Nest &Nest);

/// Calls the runtime with a region:
///   void spm_access(void *base, int64_t begin, int64_t end, int64_t bytes, struct spm_site *site)
void callBefore(const Region &Of, llvm::ScalarEvolution &SE);

} // namespace spm

#endif
