//! The program `colocate-study`.

fn main() -> std::process::ExitCode {
    colocate_study_cli::main_with(&[])
}
