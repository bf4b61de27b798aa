//! The loop and the guard with scripted hosts.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod guard;
mod run;
mod standing;
