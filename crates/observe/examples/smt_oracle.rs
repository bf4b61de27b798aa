//! `smt_oracle [RUN]…`: the core model against LLVM's simulation of a scheduler, with the tables of docs/method/validation.md.
//!
//! Some minutes for each run. Runs are processors, with pairs of siblings, and `fours-znver1` and `fours-thunderx2`,
//! with four [default: all]. Needs llvm-mca.

#[path = "../tests/all/smt_oracle/mod.rs"]
mod smt_oracle;

fn main() -> Result<(), String> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let all = smt_oracle::WHOLE;
    if let Some(name) = named.iter().find(|name| !all.contains(&name.as_str())) {
        return Err(format!("expected runs of {}, found {name}", all.join(", ")));
    }
    let is_named = |run: &&str| named.is_empty() || named.iter().any(|name| name == run);
    all.into_iter().filter(is_named).for_each(smt_oracle::whole);
    Ok(())
}
