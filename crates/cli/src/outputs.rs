//! Files for the report, with the format by their extension.

use crate::exit::usage;
use crate::output;
use colocate_files::FileMode;
use std::path::{Path, PathBuf};

/// A file with the format of its content.
pub struct Output<'a> {
    path: &'a Path,
    /// Format of the content.
    pub form: Form,
    mode: FileMode,
}

/// Format of a report.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Tables as text.
    Text,
    /// JSON.
    Json,
    /// An SVG picture.
    Picture,
}

/// The format for `path`, by its extension; for `-` text, or JSON if `json`.
fn form_of(path: &Path, json: bool) -> anyhow::Result<Form> {
    let ending = path.extension().and_then(|ending| ending.to_str());
    match ending {
        _ if path.as_os_str() == "-" => Ok(if json { Form::Json } else { Form::Text }),
        Some("txt") => Ok(Form::Text),
        Some("json") => Ok(Form::Json),
        Some("svg") => Ok(Form::Picture),
        _ => {
            let found = path.display();
            Err(usage(format!("expected -o FILE.txt, FILE.json or FILE.svg, found {found}")))
        }
    }
}

/// The format for each of `paths`; `-` is standard output and gets text, or JSON if `json`.
pub fn of(paths: &[PathBuf], json: bool, mode: FileMode) -> anyhow::Result<Vec<Output<'_>>> {
    let outputs = paths.iter().map(|path| Ok(Output { path, form: form_of(path, json)?, mode }));
    let outputs: Vec<Output<'_>> = outputs.collect::<anyhow::Result<_>>()?;
    let mut files = outputs.iter().filter(|output| output.path.as_os_str() != "-");
    files.try_for_each(|output| colocate_files::has_place(output.path))?;
    Ok(outputs)
}

impl Output<'_> {
    /// Writes the content that `content` returns for the format.
    pub fn write(
        &self,
        content: impl FnOnce(Form) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        output::write_as(Some(self.path), &content(self.form)?, self.mode)
    }
}
