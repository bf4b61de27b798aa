"""Tests of the compiler pass, for LLVM's lit: compiler/spm/test/run runs them."""
import os
import lit.formats

config.name = "spm"
config.test_format = lit.formats.ShTest(True)
config.suffixes = [".c", ".cpp", ".f90", ".test"]
config.excludes = ["Inputs", "counts", "coverage"]
config.test_source_root = os.path.dirname(__file__)

# What compiler/spm/test/run says: the major of LLVM, the folder of the plugins, and the runtime.
major = os.environ["SPM_LLVM"]
built = os.environ["SPM_BUILT"]
config.test_exec_root = os.path.join(built, f"test-{major}")
config.environment["PATH"] = f"/usr/lib/llvm-{major}/bin:" + os.environ["PATH"]
plugin = os.path.join(built, f"spm-{major}.so")
config.substitutions += [
    ("%plugin", plugin),
    ("%counter", os.path.join(built, f"count-{major}.so")),
    ("%spm", f"clang -O2 -fno-discard-value-names -fpass-plugin={plugin}"),
    ("%runtime", os.environ["SPM_RUNTIME"]),
    ("%older", "-DOLDER" if int(major) < 19 else ""),
    ("%kernels", os.path.join(config.test_source_root, "../../../workloads/numa")),
]
if os.path.exists(f"/usr/lib/llvm-{major}/bin/ld.lld"):
    config.available_features.add("lld")
if any(os.path.exists(f"/usr/lib/llvm-{major}/bin/{name}") for name in ("flang", "flang-new")):
    config.available_features.add("flang")
