//! The part of the command line about sharing a session.

use clap::Args;

use super::ExportFormat;

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The token is taken from ROPEWALK_SHARE_TOKEN or OTTER_SHARE_TOKEN, and never from a file.\n\
    Secrets are taken out of what is sent, as everywhere. Plain http is spoken to this machine only."
)]
pub struct ShareOptions {
    /// The session; the beginning of its id is enough
    pub id: String,

    /// Where to; without it, the address in ROPEWALK_SHARE_URL or OTTER_SHARE_URL
    #[arg(long, value_name = "URL")]
    pub to: Option<String>,

    /// html and markdown are for reading; json comes back whole when imported
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "html")]
    pub format: ExportFormat,

    /// Put it at exactly this address, instead of posting it to whoever makes addresses there
    #[arg(long)]
    pub put: bool,

    /// Say as JSON where it is
    #[arg(long)]
    pub json: bool,
}
