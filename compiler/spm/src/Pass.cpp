//===- Pass.cpp - Selective page migration --------------------------------===//
#include "Pass.h"
#include "Accesses.h"
#include "Calls.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"

#define DEBUG_TYPE "spm"

using namespace llvm;
using namespace spm;

namespace {

/// An array as the program names it, as far as that is known.
std::string nameOf(const Value &Base) {
  const Value *V = &Base;
  if (auto *Load = dyn_cast<LoadInst>(V))
    V = Load->getPointerOperand()->stripPointerCasts();
  return V->hasName() ? V->getName().str() : "memory";
}

void report(const Access &Of, OptimizationRemarkEmitter &Remarks) {
  Remarks.emit([&] {
    OptimizationRemarkAnalysis Remark(DEBUG_TYPE, "Access", Of.At);
    Remark << (Of.Writes ? "store to " : "load of ") << ore::NV("Array", nameOf(*cast<SCEVUnknown>(Of.Base)->getValue()))
           << ": known before " << ore::NV("Hoisted", Of.Hoisted) << " of " << ore::NV("Depth", Of.Depth) << " loops";
    if (!Of.Stopped.empty())
      Remark << ": " << ore::NV("Reason", Of.Stopped);
    return Remark;
  });
}

void report(const Refusal &Of, OptimizationRemarkEmitter &Remarks) {
  Remarks.emit([&] {
    return OptimizationRemarkMissed(DEBUG_TYPE, "Unknown", Of.At)
           << (isa<StoreInst>(Of.At) ? "store" : "load") << " not followed: " << ore::NV("Reason", Of.Why);
  });
}

void report(const Region &Of, OptimizationRemarkEmitter &Remarks) {
  Remarks.emit([&] {
    OptimizationRemark Remark(DEBUG_TYPE, "Call", Of.Before->getStartLoc(), Of.Before->getHeader());
    std::string Least, Greatest, Amount;
    raw_string_ostream(Least) << *Of.Bytes.Least;
    raw_string_ostream(Greatest) << *Of.Bytes.Greatest;
    raw_string_ostream(Amount) << *Of.Amount;
    Remark << "call with " << ore::NV("Array", nameOf(*cast<SCEVUnknown>(Of.Base)->getValue())) << ", from byte "
           << ore::NV("Begin", Least) << " to " << ore::NV("End", Greatest) << ", " << ore::NV("Amount", Amount)
           << " bytes accessed";
    return Remark;
  });
}

bool isLeftOut(const Function &F) {
  // The runtime itself, and code whose memory another tool watches for loads that race.
  return F.getName().starts_with("spm_") || F.hasFnAttribute(Attribute::Naked) ||
         F.hasFnAttribute(Attribute::SanitizeThread) || F.hasFnAttribute(Attribute::SanitizeMemory) ||
         F.hasFnAttribute(Attribute::SanitizeAddress);
}

} // namespace

PreservedAnalyses SelectivePageMigration::run(Function &F, FunctionAnalysisManager &Analyses) {
  auto &LI = Analyses.getResult<LoopAnalysis>(F);
  if (LI.empty() || isLeftOut(F))
    return PreservedAnalyses::all();
  auto &DT = Analyses.getResult<DominatorTreeAnalysis>(F);
  auto &SE = Analyses.getResult<ScalarEvolutionAnalysis>(F);
  auto &AC = Analyses.getResult<AssumptionAnalysis>(F);
  auto &Remarks = Analyses.getResult<OptimizationRemarkEmitterAnalysis>(F);
  bool Changed = false;
  for (Loop *L : LI)
    Changed |= simplifyLoop(L, &DT, &LI, &SE, &AC, nullptr, /*PreserveLCSSA=*/false);

  auto memory = [&]() -> MemorySSA & { return Analyses.getResult<MemorySSAAnalysis>(F).getMSSA(); };
  Before Loads(F, DT, memory);
  Nest Loops(SE, LI, Loads);
  const Accesses All = accessesOf(F, SE, LI, Loops, Loads);
  for (const Access &Of : All.Known)
    report(Of, Remarks);
  for (const Refusal &Of : All.Refused)
    report(Of, Remarks);
  MapVector<Loop *, std::vector<Region>> Regions;
  for (const Region &Of : regionsOf(All, SE, Loops)) {
    report(Of, Remarks);
    Regions[Of.Before].push_back(Of);
  }
  for (auto &[Before, Of] : Regions)
    callBefore(Of, SE, DT, LI);
  Loads.removeUnused();
  return Regions.empty() && !Changed ? PreservedAnalyses::all() : PreservedAnalyses::none();
}
