//! What Fedorova et al. published, beside which our figures stand. Nothing is fitted to it.

use super::points::Question;
use serde::{Deserialize, Serialize};

/// A published figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Which question it answers.
    pub question: Question,
    /// What it says.
    pub text: String,
    /// Where.
    pub source: String,
}

const TEXT: &str =
    "Fedorova et al., Maximizing power efficiency with asymmetric multicore systems, text";
const FIGURE: &str =
    "the same, figure 6: its axis; what was lost on which topology is not in the text";

/// All of it.
#[must_use]
pub fn all() -> Vec<Published> {
    let one = |question, text: &str, source: &str| Published {
        question,
        text: text.to_owned(),
        source: source.to_owned(),
    };
    vec![
        one(
            Question::Shares,
            "up to 26 % faster than an asymmetry-unaware scheduler where 40 to 60 % are sequential",
            TEXT,
        ),
        one(Question::Shares, "no speed-up where sequential phases are small (wupwise)", TEXT),
        one(
            Question::Migrations,
            "an axis from 5 to 25 % lost, for the migration-unfriendly and the friendly topology together",
            FIGURE,
        ),
        one(
            Question::Threads,
            "fewer threads up to where an application is at its peak efficiency, where memory is the limit; no number",
            TEXT,
        ),
        one(
            Question::Waiting,
            "threads that spin can hide sequential phases from the runnable count; no number",
            TEXT,
        ),
    ]
}
