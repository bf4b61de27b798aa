//! The program `colocate`.

fn main() -> std::process::ExitCode {
    colocate_cli::main_with(&[])
}
