//! `colocate-study map`: a mapping of threads to PUs by a file of their communication.

use anyhow::Context;
use colocate_cli::exit::usage;
use colocate_cli::input;
use colocate_cli::output;
use colocate_figures::table::aligned;
use colocate_files::FileMode;
use colocate_machine::printable::json;
use colocate_machine::{PuIdx, PuNr, printable, read};
use colocate_policy::communication::mapping::{cost, mapping};
use colocate_policy::places::UsableMachine;
use colocate_study::heat;
use colocate_study::matrices::{MAX_BYTES, Square};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Maps threads to the PUs of a machine by a matrix of their communication
///
/// The matrix has a row for each thread: amounts separated by commas (.csv), or JSON as `colocate-study replay --json` prints it (.json).
/// Prints a PU for each thread, as the policy communication chooses it, and what that costs beside the PUs in logical order
/// (docs/results/communication.md).
#[derive(clap::Args)]
pub struct Args {
    /// File with the matrix, .csv or .json
    #[arg(value_name = "MATRIX")]
    matrix: PathBuf,

    /// CSV files begin with the last thread's row, as those of EagerMap and numalize
    #[arg(long)]
    reversed: bool,

    /// Machine, as for `colocate topo`: a described one by name, a file, or live
    #[arg(long, value_name = "SPEC", default_value = "live")]
    machine: String,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// File for the matrix in another form: .csv, .json, or .svg for a heat map
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Serialize)]
struct Mapped {
    machine: String,
    /// PU of each thread, by the kernel's number.
    pus: Vec<PuNr>,
    cost: f64,
    cost_in_order: f64,
    heterogeneity: f64,
    matrix: Vec<Vec<f64>>,
}

/// Runs `colocate-study map`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let square = square(&args.matrix, args.reversed)?;
    let form = args.output.as_deref().map(ending).transpose()?;
    let seen = read::load(&args.machine)?;
    let machine = seen.machine;
    let pus: Vec<PuIdx> = machine.all_pus().collect();
    let places = UsableMachine::new(&machine, &pus);
    let matrix = square.matrix();
    let tasks = square.tasks();
    let seats = mapping(&matrix, &tasks, &places);
    // With more threads than PUs, again from the first PU.
    let in_order: Vec<PuIdx> = pus.iter().copied().cycle().take(tasks.len()).collect();
    let mapped = Mapped {
        machine: machine.name.clone(),
        pus: seats.iter().map(|pu| machine.pus[pu.idx()].os).collect(),
        cost: cost(&matrix, &tasks, &places, &seats),
        cost_in_order: cost(&matrix, &tasks, &places, &in_order),
        heterogeneity: matrix.heterogeneity(tasks.len()),
        matrix: square.rows().to_vec(),
    };
    if let (Some(path), Some(form)) = (&args.output, form) {
        let text = match form {
            "csv" => square.to_csv(args.reversed),
            "json" => json(&mapped),
            // `svg`: `ending` returns nothing else.
            _ => heat::svg(&[("communication", square.rows())]).map_err(anyhow::Error::msg)?,
        };
        output::write_as(Some(path), &text, FileMode::ByUmask)?;
    }
    let text = if args.json { json(&mapped) } else { mapped.text() };
    output::write(None, &text)?;
    Ok(ExitCode::SUCCESS)
}

fn square(path: &Path, reversed: bool) -> anyhow::Result<Square> {
    let text = input::text(path, input::limit(MAX_BYTES))?;
    let is_json = path.extension().is_some_and(|ending| ending == "json");
    let read = if is_json { Square::from_json(&text) } else { Square::from_csv(&text, reversed) };
    read.map_err(anyhow::Error::msg).with_context(|| path.display().to_string())
}

/// File format by the name's ending.
fn ending(path: &Path) -> anyhow::Result<&'static str> {
    let found = path.extension().and_then(|ending| ending.to_str());
    let known = ["csv", "json", "svg"].into_iter().find(|known| Some(*known) == found);
    known.ok_or_else(|| {
        usage(format!("expected -o FILE.csv, FILE.json or FILE.svg, found {}", path.display()))
    })
}

impl Mapped {
    fn text(&self) -> String {
        let mut text =
            format!("machine {}, {} threads\n", printable(&self.machine), self.pus.len());
        let cost = self.cost;
        let in_order = self.cost_in_order;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "cost {cost}, {in_order} with PUs in logical order; H {:.2} (docs/results/communication.md)\n",
            self.heterogeneity
        );
        let mut rows = vec![vec!["thread".to_owned(), "PU".to_owned()]];
        let pus = self.pus.iter().enumerate();
        rows.extend(pus.map(|(thread, pu)| vec![thread.to_string(), pu.0.to_string()]));
        text + &aligned(&rows)
    }
}
