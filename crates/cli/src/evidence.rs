//! What reports say of the evidence that was requested.

use colocate_policy::{Grant, Source};
use serde::Serialize;

/// A source, and what provided it.
#[derive(Clone, Serialize)]
pub struct Evidence {
    source: Source,
    /// What provided it; `None` if nothing did.
    backend: Option<&'static str>,
    /// What it costs; `None` if nothing provided it.
    cost: Option<String>,
    /// Why nothing did; `None` if something did.
    refused: Option<String>,
    /// What to do about that.
    remedy: Option<&'static str>,
}

impl Evidence {
    /// In the order of the requests.
    pub fn of(grants: &[Grant]) -> Vec<Self> {
        grants.iter().map(Self::from).collect()
    }

    /// One line of text.
    pub fn line(&self) -> String {
        let source = self.source.name();
        match (&self.backend, &self.cost, &self.refused) {
            (Some(backend), Some(cost), _) => format!("evidence {source}: {backend} ({cost})"),
            (_, _, Some(why)) => format!("evidence {source}: none, because {why}"),
            _ => format!("evidence {source}: none"),
        }
    }
}

impl From<&Grant> for Evidence {
    fn from(grant: &Grant) -> Self {
        let (granted, refused) = (grant.answer.as_ref().ok(), grant.answer.as_ref().err());
        Self {
            source: grant.source,
            backend: granted.map(|backend| backend.name),
            cost: granted.map(|backend| backend.cost.clone()),
            refused: refused.map(|refusal| refusal.why.clone()),
            remedy: refused.map(|refusal| refusal.remedy),
        }
    }
}
