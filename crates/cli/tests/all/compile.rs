//! `colocate cc` with the compiler pass and the runtime, as programs are built with it.

use colocate_testing::skip::{Missing, Requirement};
use colocate_testing::{need, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const COLOCATE: &str = env!("CARGO_BIN_EXE_colocate");

/// A program whose loops the pass follows.
const SOURCE: &str = "#include <stdio.h>
static double a[1 << 16], b[1 << 16];
int main(int argc, char **argv) {
  for (long round = 0; round < argc * 10; ++round)
    for (long i = 0; i < 1 << 16; ++i)
      a[i] += b[i]++ + 1;
  printf(\"%g\\n\", a[1]);
}
";

/// The same of Fortran.
const FORTRAN: &str = "program main
  real(8), allocatable :: a(:), b(:)
  integer :: round
  allocate(a(65536), b(65536))
  a = 0
  b = 0
  do round = 1, 10
    call add(a, b, 65536)
  end do
  print '(i0)', int(a(2))
contains
  subroutine add(a, b, n)
    integer, intent(in) :: n
    real(8), intent(inout) :: a(n), b(n)
    integer :: i
    do i = 1, n
      a(i) = a(i) + b(i) + 1
      b(i) = b(i) + 1
    end do
  end subroutine
end program
";

/// The compiler behind `colocate cc`, or `colocate fc`.
fn works_here(command: &str, what: Requirement) -> Result<(), Missing> {
    let has = Command::new(COLOCATE).args([command, "--version"]).output().unwrap();
    what.if_there(has.status.success(), String::from_utf8_lossy(&has.stderr))
}

fn compiler_pass() -> Result<(), Missing> {
    works_here("cc", Requirement::CompilerPass)
}

fn written(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Runs it to its end; what it prints.
fn run(command: &mut Command) -> String {
    let done = command.output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {errors}");
    String::from_utf8(done.stdout).unwrap()
}

/// It computes what it should, and has the calls.
fn works(program: &Path) {
    assert_eq!(run(&mut Command::new(program)), "55\n");
    let symbols = run(Command::new("nm").arg(program));
    assert!(symbols.contains(" T spm_access"), "{symbols}");
}

#[test]
fn compiles_and_links() {
    need!(compiler_pass());
    let folder = TempDir::new().unwrap();
    let source = written(&folder, "a.c", SOURCE);
    let program = folder.path().join("a");
    let mut cc = Command::new(COLOCATE);
    cc.args(["cc", "-O2", "-Rpass=spm", "-Werror"]).arg(&source).arg("-o").arg(&program);
    let done = cc.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert_eq!(said.matches("remark: call with").count(), 2, "{said}");
    works(&program);
    // In two steps, as build systems do.
    let object = folder.path().join("a.o");
    run(Command::new(COLOCATE)
        .args(["cc", "-O2", "-Werror", "-c"])
        .arg(&source)
        .arg("-o")
        .arg(&object));
    run(Command::new(COLOCATE).args(["cc", "-Werror"]).arg(&object).arg("-o").arg(&program));
    works(&program);
}

/// A program of Fortran, where flang is.
#[test]
fn fortran_compiles_links_and_runs() {
    need!(compiler_pass());
    need!(works_here("fc", Requirement::Fortran));
    let folder = TempDir::new().unwrap();
    let source = written(&folder, "a.f90", FORTRAN);
    let program = folder.path().join("a");
    run(Command::new(COLOCATE).args(["fc", "-O2"]).arg(&source).arg("-o").arg(&program));
    assert_eq!(run(&mut Command::new(&program)).trim(), "55");
    let code = run(Command::new("objdump").arg("-dr").arg(&program));
    assert!(code.lines().any(|line| line.contains("call") && line.contains("<spm_access>")));
}

/// The two lines of docs/guide/compile.md for each.
#[test]
fn recipes_for_make_and_cmake() {
    need!(compiler_pass());
    let folder = TempDir::new().unwrap();
    written(&folder, "a.c", SOURCE);
    written(&folder, "Makefile", "CFLAGS = -O2\na: a.c\n");
    run(Command::new("make").arg("-C").arg(folder.path()).arg(format!("CC={COLOCATE} cc")));
    works(&folder.path().join("a"));
    let list = "cmake_minimum_required(VERSION 3.13)\nproject(a C)\nadd_executable(a a.c)\n";
    written(&folder, "CMakeLists.txt", list);
    let build = folder.path().join("build");
    let mut cmake = Command::new("cmake");
    cmake.env("CC", format!("{COLOCATE} cc")).arg("-DCMAKE_BUILD_TYPE=Release");
    run(cmake.arg("-S").arg(folder.path()).arg("-B").arg(&build));
    run(Command::new("cmake").arg("--build").arg(&build));
    works(&build.join("a"));
}

#[test]
fn the_compilers_status_is_passed_on() {
    need!(compiler_pass());
    let folder = TempDir::new().unwrap();
    let wrong = written(&folder, "a.c", "int main(void) { return x; }\n");
    let done =
        Command::new(COLOCATE).args(["cc", "-c"]).arg(wrong).current_dir(&folder).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
}

#[test]
fn without_a_compiler_one_line_says_so() {
    need!(compiler_pass());
    let done = Command::new(COLOCATE).args(["cc", "a.c"]).env("PATH", "/nowhere").output().unwrap();
    let said = colocate_testing::printed::refusal(&done, 3);
    assert!(said.contains("clang-19") && said.contains("found none"), "{said}");
}

/// `colocate cc` with these words in a folder; nothing is said.
fn cc(folder: &TempDir, words: &str) {
    let words = words.split_whitespace();
    let done = Command::new(COLOCATE).arg("cc").args(words.clone()).current_dir(folder).output();
    let done = done.unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.is_empty(), "{}: {said}", words.collect::<String>());
}

/// Programs in parts: objects that are joined, each of which would have a runtime of its own; files after `--`; files from standard
/// input; assembler alone; and headers that are compiled before.
#[test]
fn as_build_systems_call_it() {
    need!(compiler_pass());
    let folder = TempDir::new().unwrap();
    written(&folder, "a.c", SOURCE);
    let part = |name: &str| {
        let text = "double NAMEa[1 << 16]; void NAME(void) { for (long i = 0; i < 1 << 16; ++i) NAMEa[i] += i; }\n";
        written(&folder, &format!("{name}.c"), &text.replace("NAME", name));
    };
    part("one");
    part("two");
    cc(&folder, "-O2 -Werror -r a.c one.c -o first.o");
    cc(&folder, "-O2 -Werror -r two.c -o second.o");
    cc(&folder, "-Werror first.o second.o -o joined");
    works(&folder.path().join("joined"));
    written(&folder, "-strange.c", "int strange;\n");
    cc(&folder, "-O2 -Werror -o separated -- a.c -strange.c");
    works(&folder.path().join("separated"));
    // Here it is a name, and not what comes after it.
    cc(&folder, "-O2 -Werror -o -- a.c");
    works(&folder.path().join("--"));
    written(&folder, "s.s", ".section .note.GNU-stack,\"\",@progbits\n");
    cc(&folder, "-Werror -c s.s -o s.o");
    cc(&folder, "-Werror -fsyntax-only a.c");
    cc(&folder, "-Werror -O2 -S a.c -o a.s");
    cc(&folder, "-Werror a.s s.o -o assembled");
    works(&folder.path().join("assembled"));
    written(&folder, "head.h", "#include <stdio.h>\n");
    cc(&folder, "-Werror -O2 head.h -o head.h.pch");
    cc(&folder, "-Werror -O2 -include-pch head.h.pch a.c -o with-header");
    works(&folder.path().join("with-header"));
    let mut from_input = Command::new(COLOCATE);
    from_input.args(["cc", "-O2", "-x", "c", "-", "-o", "input"]).current_dir(&folder);
    run(from_input.stdin(std::fs::File::open(folder.path().join("a.c")).unwrap()));
    works(&folder.path().join("input"));
}

/// A linker's arguments in `-Wl,` end at a comma.
#[test]
fn installed_in_a_folder_with_a_comma() {
    need!(compiler_pass());
    let folder = TempDir::new().unwrap();
    let (bin, lib) = (folder.path().join("a,b c/bin"), folder.path().join("a,b c/lib/colocate"));
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::create_dir_all(&lib).unwrap();
    let installed = bin.join("colocate");
    std::fs::copy(COLOCATE, &installed).unwrap();
    let built = Path::new(COLOCATE).parent().unwrap().join("../spm");
    for name in ["spm-19.so", "libcolocate_spm_rt.a"] {
        if std::fs::copy(built.join(name), lib.join(name)).is_err() {
            skip!(CompilerPass, "no {name} in {}", built.display());
        }
    }
    let source = written(&folder, "a.c", SOURCE);
    let mut options = vec![&[][..]];
    if Path::new("/usr/lib/llvm-19/bin/ld.lld").exists() {
        options.push(&["-flto=thin", "-fuse-ld=lld"]);
    }
    for options in options {
        let program = folder.path().join("a");
        let mut cc = Command::new(&installed);
        run(cc.args(["cc", "-O2", "-Werror"]).args(options).arg(&source).arg("-o").arg(&program));
        works(&program);
    }
}
