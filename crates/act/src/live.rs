//! Reading this machine without a trace on ourselves.

use crate::sys::{self, Fork};
use colocate_machine::{Machine, read};
use std::io::{self, Read, Write};

/// This machine, as [`read::live`] reads it, by a child process. To be called before threads are
/// created.
///
/// hwloc binds its thread to one PU after the other, and at the end to those that it could use
/// before. Programs that inherit that mask never run on a PU that was offline meanwhile, nor on
/// those by which their cpuset grows. A thread would not do: the first one that a process creates
/// has glibc take a signal, which programs may then find otherwise than without us.
///
/// # Errors
/// One line: why the machine cannot be read, or that no pipe or process can be had.
pub fn live() -> Result<Machine, String> {
    let (mut ear, mut mouth) = io::pipe().map_err(|why| format!("pipe: {why}"))?;
    let child = match sys::fork().map_err(|why| why.to_string())? {
        Fork::Parent(child) => child,
        Fork::Child => {
            drop(ear);
            // Nothing may unwind into the code of the process that this is a copy of.
            let _ = std::panic::catch_unwind(move || tell(&mut mouth));
            sys::exit_now(0)
        }
    };
    drop(mouth);
    let mut told = Vec::new();
    let heard = ear.read_to_end(&mut told);
    // Fails if colocate was started with SIGCHLD ignored; the child is gone then as well.
    let _ = sys::wait(Some(child), true);
    heard.map_err(|why| format!("read from a pipe: {why}"))?;
    serde_json::from_slice::<Result<Machine, String>>(&told)
        .unwrap_or_else(|_| Err("the process that reads the machine was killed".into()))
}

fn tell(mouth: &mut io::PipeWriter) {
    let read = read::live().map_err(|why| why.to_string());
    if let Ok(text) = serde_json::to_vec(&read) {
        let _ = mouth.write_all(&text);
    }
}
