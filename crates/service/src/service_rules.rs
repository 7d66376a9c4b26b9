//! What a server allows its callers besides the authority table: folders and sizes.

use std::path::PathBuf;
use std::sync::Arc;

use crate::{BridgeStatuses, UpdateNumbers};

/// As many updates as otter keeps.
const HISTORY_MAX: u64 = 1024;
/// The default page size of a listing.
pub const LIST_MAX: usize = 100;

/// What this server allows its callers.
#[derive(Debug, Clone)]
pub struct ServiceRules {
    /// The folder of sessions whose client names none.
    pub home_dir: PathBuf,
    /// The folders in or below which a session must work; without a list, any folder the client names.
    pub places: Option<Vec<PathBuf>>,
    /// Further folders that sessions may work in; without a list, any folder the client names.
    pub allowed_dirs: Option<Vec<PathBuf>>,
    /// Sessions on one page of a listing; 0 lists all.
    pub list_max: usize,
    /// The name of the door in listings.
    pub source: Arc<str>,
    /// Everybody may ask what this server is.
    pub discovery: bool,
    /// How many updates a client of a dialect with numbers can get again.
    pub history_max: u64,
    /// Shared by all connections of a server.
    pub numbers: UpdateNumbers,
    /// How sessions are seen elsewhere; shared likewise.
    pub bridges: BridgeStatuses,
}

impl ServiceRules {
    /// The folders that sessions may work in, for callers that open folders.
    pub fn within(&self) -> Option<Arc<[PathBuf]>> {
        self.places.as_deref().map(Into::into)
    }

    /// The same rules for remote callers: their sessions work below the server's own folder, or in one that
    /// its owner opened.
    pub fn confined(&self) -> Self {
        let allowed = self.allowed_dirs.clone().unwrap_or_default();
        let places: Vec<_> = std::iter::once(self.home_dir.clone()).chain(allowed).collect();
        Self { allowed_dirs: Some(places.clone()), places: Some(places), ..self.clone() }
    }
}

impl Default for ServiceRules {
    fn default() -> Self {
        Self {
            home_dir: "/".into(),
            places: None,
            allowed_dirs: None,
            list_max: LIST_MAX,
            source: "acp".into(),
            discovery: true,
            history_max: HISTORY_MAX,
            numbers: UpdateNumbers::default(),
            bridges: BridgeStatuses::default(),
        }
    }
}
