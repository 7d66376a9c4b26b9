//! `ropewalk sessions share`.

use clap::Args;

use super::ExportFormat;

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The token comes from ROPEWALK_SHARE_TOKEN or OTTER_SHARE_TOKEN, never from a file.\n\
    Secrets are redacted, as everywhere. Plain http works only for this machine."
)]
pub struct ShareOptions {
    /// Session id, or a unique prefix of it
    pub id: String,

    /// URL to upload to (default: ROPEWALK_SHARE_URL or OTTER_SHARE_URL)
    #[arg(long, value_name = "URL")]
    pub to: Option<String>,

    /// html and markdown are for reading; json can be imported again
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "html")]
    pub format: ExportFormat,

    /// Upload with PUT to exactly this URL, instead of POST to a service that assigns one
    #[arg(long)]
    pub put: bool,

    /// Print the address as JSON
    #[arg(long)]
    pub json: bool,
}
