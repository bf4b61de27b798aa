//===- Before.h - Loads in a loop, repeated before it ---------------------===//
#ifndef COLOCATE_SPM_BEFORE_H
#define COLOCATE_SPM_BEFORE_H

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/MemorySSA.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/ValueHandle.h"

namespace spm {

/// Repeats loads of a loop in its preheader.
///
/// Pointers and bounds that are global, or captured by reference, are loaded in each iteration if a store in the loop may
/// change them. For a hint the value before the loop is good enough, if it can be loaded there. It can if
/// - its address is known there and may always be read: a global, a variable on the stack, a captured variable; or
/// - the first iteration loads it for certain, or under a condition that is known before the loop, and nothing in that iteration writes
///   before it does.
/// A value that is loaded once before the loop and again at the end of each iteration counts as it was before, too.
class Before {
public:
  Before(llvm::Function &F, llvm::DominatorTree &DT,
         llvm::function_ref<llvm::MemorySSA &()> MSSA)
      : DL(F.getParent()->getDataLayout()), DT(DT), MSSA(MSSA) {}

  /// What V is before L, or null if that is not known there. V may be a copy that this has made.
  llvm::Value *value(llvm::Value &V, const llvm::Loop &L);

  /// Removes the copies that nothing uses.
  void removeUnused();

private:
  llvm::Value *copyOfLoad(llvm::LoadInst &Load, const llvm::Loop &L);
  llvm::Value *startOfPhi(llvm::PHINode &Phi, const llvm::Loop &L);
  llvm::Value *copyOfAddress(llvm::Instruction &Address, const llvm::Loop &L);
  llvm::Value *addressIfLoaded(llvm::LoadInst &Load, llvm::Value &Address, const llvm::Loop &L);
  bool isSafe(const llvm::LoadInst &Load, llvm::Value &Address, const llvm::Loop &L);
  bool isSameBefore(const llvm::LoadInst &Load, const llvm::Loop &L);
  bool isExecuted(const llvm::Instruction &I, const llvm::Loop &L);
  bool isUnchanged(const llvm::LoadInst &Load, const llvm::Loop &L);

  const llvm::DataLayout &DL;
  llvm::DominatorTree &DT;
  llvm::function_ref<llvm::MemorySSA &()> MSSA;
  /// By loop and original.
  llvm::DenseMap<std::pair<const llvm::Loop *, llvm::Value *>, llvm::Value *> Copies;
  llvm::DenseMap<llvm::Value *, llvm::Value *> Originals;
  llvm::SmallVector<llvm::WeakTrackingVH, 8> Made;
};

} // namespace spm

#endif
