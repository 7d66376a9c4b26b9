//! `ropewalk sessions`: reads sessions without disturbing running turns, and changes stored ones.

mod cost;
pub mod export;
pub mod find;
mod fork_rename_delete;
mod import;
mod list;
mod salvage;
mod share_upload;
mod show;

use std::process::ExitCode;
use std::sync::Arc;

use engine::{Body, PageRequest, Principal, Registry, Seq, SessionId, SessionLimits};

use crate::cli::SessionsCommand;
use crate::cli_error::CliError;
use crate::guard_settings::Guards;
use crate::{chimera_event_log, registry, run as one_run};
pub use wire::parse_past_time::PastTime;

pub fn run(command: SessionsCommand) -> anyhow::Result<ExitCode> {
    let as_json = wants_json(&command);
    if let SessionsCommand::Salvage(options) = &command {
        // The damaged store may not open at all.
        return Ok(salvage::run(options));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let limits = SessionLimits { attended: false, ..SessionLimits::default() };
        if let Some(id) = named(&command).filter(|_| changes(&command)) {
            chimera_event_log::import_named(id, &one_run::folder(None)?).await?;
        }
        // Reading sessions needs no audit, and so no key.
        let (registry, audit) = match changes(&command) {
            true => registry::audited_registry(limits, false, &Guards::none())?,
            false => (registry::registry(limits, false, &Guards::none())?, None),
        };
        let outcome = match registry::audit_must_be_free(audit.as_ref()).await {
            Ok(()) => carry_out_there(&registry, command).await,
            Err(error) => Err(error),
        };
        registry.shutdown().await;
        outcome
    });
    Ok(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(as_json),
    })
}

fn wants_json(command: &SessionsCommand) -> bool {
    match command {
        SessionsCommand::List(options) => options.json,
        SessionsCommand::Show(options) => options.json,
        SessionsCommand::Cost(options) => options.json,
        SessionsCommand::Export(options) => options.json,
        SessionsCommand::Share(options) => options.json,
        SessionsCommand::Import(options) => options.json,
        SessionsCommand::Fork(options) => options.json,
        SessionsCommand::Rename(options) => options.json,
        SessionsCommand::Delete(options) => options.json,
        SessionsCommand::Salvage(options) => options.json,
    }
}

fn changes(command: &SessionsCommand) -> bool {
    match command {
        SessionsCommand::List(_)
        | SessionsCommand::Show(_)
        | SessionsCommand::Cost(_)
        | SessionsCommand::Export(_)
        | SessionsCommand::Share(_)
        | SessionsCommand::Salvage(_) => false,
        SessionsCommand::Import(_)
        | SessionsCommand::Fork(_)
        | SessionsCommand::Rename(_)
        | SessionsCommand::Delete(_) => true,
    }
}

/// The single session that a command is about.
fn named(command: &SessionsCommand) -> Option<&str> {
    match command {
        SessionsCommand::Show(options) => Some(&options.id),
        SessionsCommand::Cost(options) => options.id.as_deref(),
        SessionsCommand::Export(options) => Some(&options.id),
        SessionsCommand::Fork(options) => options.id.as_deref(),
        SessionsCommand::Rename(options) => Some(&options.id),
        SessionsCommand::Share(options) => Some(&options.id),
        SessionsCommand::List(_)
        | SessionsCommand::Import(_)
        | SessionsCommand::Delete(_)
        | SessionsCommand::Salvage(_) => None,
    }
}

/// Carries out the command; reads a session of chimera without importing it.
async fn carry_out_there(registry: &Arc<Registry>, command: SessionsCommand) -> Result<(), CliError> {
    let reading = match named(&command).filter(|_| !changes(&command)) {
        Some(id) => chimera_event_log::open_read_only(registry, id).await?,
        None => None,
    };
    let Some(passing) = reading else { return carry_out(registry, command).await };
    let outcome = carry_out(&passing, command).await;
    passing.shutdown().await;
    outcome
}

async fn carry_out(registry: &Arc<Registry>, command: SessionsCommand) -> Result<(), CliError> {
    match command {
        SessionsCommand::List(options) => list::run(registry, &options).await,
        SessionsCommand::Show(options) => show::run(registry, &options).await,
        SessionsCommand::Cost(options) => cost::run(registry, &options).await,
        SessionsCommand::Export(options) => export::run(registry, &options).await,
        SessionsCommand::Share(options) => share_upload::run(registry, &options).await,
        SessionsCommand::Import(options) => import::run(registry, &options).await,
        SessionsCommand::Fork(options) => fork_rename_delete::fork(registry, &options).await,
        SessionsCommand::Rename(options) => fork_rename_delete::rename(registry, &options).await,
        SessionsCommand::Delete(options) => fork_rename_delete::delete(registry, &options).await,
        // Carried out without a registry.
        SessionsCommand::Salvage(_) => Ok(()),
    }
}

/// The external agent that last worked in a session, if any.
pub async fn agent_of(registry: &Registry, id: &SessionId) -> Result<Option<Arc<str>>, CliError> {
    let (mut after, mut found) = (Seq::START, None);
    loop {
        let page = registry.read(&Principal::local(), id, after, PageRequest::OUTLINE).await;
        let page = page.map_err(CliError::from_open)?;
        let Some(last) = page.last() else { return Ok(found) };
        after = last.seq;
        for event in page {
            if let Body::Joined { agent, .. } = &event.body {
                found = Some(Arc::clone(agent));
            }
        }
    }
}
