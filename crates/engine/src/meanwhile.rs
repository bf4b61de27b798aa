//! Treatment of jobs that a plan has wait.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Treatment of jobs that a plan has wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Meanwhile {
    /// Waiting jobs are stopped.
    Stop,
    /// Waiting jobs fill idle PUs: the kernel schedules their threads with the least priority
    /// (SCHED_IDLE, sched(7)). In a quantum that measures a job on its own cores
    /// ([`colocate_policy::Plan::measures`]) they are stopped all the same.
    #[default]
    Fill,
}

impl fmt::Display for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stop => "stop",
            Self::Fill => "fill",
        })
    }
}

/// Error: a word other than `stop` and `fill`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("expected stop or fill, found {0:?}")]
pub struct MeanwhileError(String);

impl FromStr for Meanwhile {
    type Err = MeanwhileError;

    fn from_str(text: &str) -> Result<Self, MeanwhileError> {
        match text {
            "stop" => Ok(Self::Stop),
            "fill" => Ok(Self::Fill),
            other => Err(MeanwhileError(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for meanwhile in [Meanwhile::Stop, Meanwhile::Fill] {
            assert_eq!(meanwhile.to_string().parse(), Ok(meanwhile));
        }
        let refused = "idle".parse::<Meanwhile>().unwrap_err().to_string();
        assert_eq!(refused, "expected stop or fill, found \"idle\"");
    }
}
