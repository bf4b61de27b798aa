//! Matrices of communication in files: CSV as EagerMap and numalize write it, and JSON.
//!
//! CSV: a row for each thread, amounts separated by commas. EagerMap's and numalize's files begin
//! with the last thread's row; for them rows are read and written in reverse. JSON: an object whose
//! `matrix` is an array of such rows, as the report of `replay`.

use colocate_evidence::{JobIdx, TaskId};
use colocate_policy::communication::matrix::Matrix;
use serde::Deserialize;
use std::fmt::Display;

/// Most threads of a matrix. Chosen: a square of this size takes 8 MiB.
pub const MOST: usize = 1_024;
/// Largest amount. Chosen: sums of squares of a matrix stay finite.
pub const MOST_AMOUNT: f64 = 1e30;
/// Characters of a wrong amount that are shown.
const SHOWN: usize = 40;
/// Most bytes of a file. Chosen: 24 for each amount.
pub const MAX_BYTES: usize = 24 * MOST * MOST;

/// A square matrix of amounts between threads, by rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Square(Vec<Vec<f64>>);

#[derive(Deserialize)]
struct MatrixFile {
    matrix: Vec<Vec<f64>>,
}

impl Square {
    /// Reads CSV; `reversed` if the last thread's row is the first.
    ///
    /// # Errors
    /// As of [`Self::of`], or a line with the text that is no number.
    pub fn from_csv(text: &str, reversed: bool) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        // Neither a text nor a line that is too long is read to its end.
        let rows = (1..).zip(lines.take(MOST + 1)).map(|(row, line)| amounts(row, line));
        let mut read = Self::of(rows.collect::<Result<_, _>>()?)?;
        if reversed {
            read.0.reverse();
        }
        Ok(read)
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// As of [`Self::of`], or a line if the text is no JSON of this form.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let file: Result<MatrixFile, _> = serde_json::from_str(text);
        Self::of(file.map_err(|why| format!("expected an object with a matrix, {why}"))?.matrix)
    }

    /// A matrix of these rows.
    ///
    /// # Errors
    /// A line if there are no rows, more than [`MOST`], or not as many as columns, or if an amount
    /// is no number from 0 to [`MOST_AMOUNT`].
    pub fn of(rows: Vec<Vec<f64>>) -> Result<Self, String> {
        let threads = rows.len();
        if threads == 0 {
            return Err("expected a row of amounts for each thread, found none".to_owned());
        }
        if threads > MOST {
            return Err(format!("expected at most {MOST} threads, found {threads}"));
        }
        for (row, amounts) in (1..).zip(&rows) {
            if amounts.len() != threads {
                let found = amounts.len();
                return Err(format!(
                    "row {row}: expected {threads} amounts, one for each row, found {found}"
                ));
            }
            // NaN lies in no range, so it is refused, too.
            let wrong =
                (1..).zip(amounts).find(|(_, amount)| !(0.0..=MOST_AMOUNT).contains(*amount));
            if let Some((column, amount)) = wrong {
                return Err(wrong_amount(row, column, amount));
            }
        }
        Ok(Self(rows))
    }

    /// As CSV; `reversed` to begin with the last thread's row.
    #[must_use]
    pub fn to_csv(&self, reversed: bool) -> String {
        let mut lines: Vec<String> = self.0.iter().map(|row| line(row)).collect();
        if reversed {
            lines.reverse();
        }
        lines.concat()
    }

    /// Rows, in the order of threads.
    #[must_use]
    pub fn rows(&self) -> &[Vec<f64>] {
        &self.0
    }

    /// Threads, in the order of rows.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskId> {
        (0..).take(self.0.len()).map(|order| TaskId { job: JobIdx(0), order }).collect()
    }

    /// The matrix of policies: sums of both directions.
    #[must_use]
    pub fn matrix(&self) -> Matrix {
        let tasks = self.tasks();
        let amounts = tasks
            .iter()
            .zip(&self.0)
            .flat_map(|(a, row)| tasks.iter().zip(row).map(move |(b, amount)| (*a, *b, *amount)));
        Matrix::of(amounts)
    }
}

/// The amounts of a line of CSV, which is row `row`, from 1.
fn amounts(row: usize, line: &str) -> Result<Vec<f64>, String> {
    let texts = (1..).zip(line.split(',').take(MOST + 1).map(str::trim));
    let amounts = texts.map(|(column, text)| {
        text.parse().map_err(|_| {
            let begin: String = text.chars().take(SHOWN).collect();
            wrong_amount(row, column, format_args!("{begin:?}"))
        })
    });
    amounts.collect()
}

fn wrong_amount(row: usize, column: usize, found: impl Display) -> String {
    format!("row {row}, column {column}: expected a number from 0 to 1e30, found {found}")
}

/// A row as a line of CSV.
fn line(row: &[f64]) -> String {
    let amounts: Vec<String> = row.iter().map(f64::to_string).collect();
    amounts.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(text: &str) -> String {
        Square::from_csv(text, false).unwrap_err().to_string()
    }

    #[test]
    fn rows_from_the_first_or_the_last() {
        let text = "0, 3,1\n5,0,2\n\n1,2.5,0\n";
        let plain = Square::from_csv(text, false).unwrap();
        assert_eq!(plain.rows(), [vec![0.0, 3.0, 1.0], vec![5.0, 0.0, 2.0], vec![1.0, 2.5, 0.0]]);
        let reversed = Square::from_csv(text, true).unwrap();
        assert_eq!(reversed.rows()[0], [1.0, 2.5, 0.0]);
        assert_eq!(plain.to_csv(false), "0,3,1\n5,0,2\n1,2.5,0\n");
        assert_eq!(reversed.to_csv(true), plain.to_csv(false));
        let task = |order| TaskId { job: JobIdx(0), order };
        assert_eq!(plain.matrix().between(task(0), task(1)), 8.0, "both directions");
    }

    #[test]
    fn what_is_no_matrix_is_refused() {
        assert_eq!(said("\n"), "expected a row of amounts for each thread, found none");
        assert_eq!(said("0,1\n1"), "row 2: expected 2 amounts, one for each row, found 1");
        assert_eq!(
            said("0,x\n1,0"),
            "row 1, column 2: expected a number from 0 to 1e30, found \"x\""
        );
        assert_eq!(
            said("0,1\n-1,0"),
            "row 2, column 1: expected a number from 0 to 1e30, found -1"
        );
        assert_eq!(
            said("0,inf\n1,0"),
            "row 1, column 2: expected a number from 0 to 1e30, found inf"
        );
        assert_eq!(said("nan"), "row 1, column 1: expected a number from 0 to 1e30, found NaN");
        let long = said(&"[".repeat(100_000));
        assert!(long.len() < 120, "{long}");
        assert!(said("0,1e31\n1,0").ends_with(" to 1e30, found 10000000000000000000000000000000"));
        let many = "0\n".repeat(2_000);
        assert_eq!(said(&many), "expected at most 1024 threads, found 1025");
        let wrong = Square::from_json(r#"{"matrix": [[0, -1], [1, 0]]}"#).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "row 1, column 2: expected a number from 0 to 1e30, found -1"
        );
        let wrong = Square::from_json("[]").unwrap_err().to_string();
        assert!(wrong.starts_with("expected an object with a matrix, "), "{wrong}");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            rows in (1..6_usize).prop_flat_map(|threads| {
                prop::collection::vec(prop::collection::vec(0.0..1e9_f64, threads), threads)
            }),
            reversed in any::<bool>(),
        ) {
            let square = Square::of(rows).unwrap();
            let csv = square.to_csv(reversed);
            prop_assert_eq!(Square::from_csv(&csv, reversed).unwrap(), square);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9,.\n e-]{0,60}") {
            let _ = (Square::from_csv(&text, false), Square::from_json(&text));
        }
    }
}
