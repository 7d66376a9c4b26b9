//! An agent of your own behind an editor: it counts down, asks before it launches, and stops when it is told to.
//!
//! `cargo build -p embed --example countdown`, then name `target/debug/examples/countdown` in your editor as any
//! other agent that speaks the Agent Client Protocol.

use std::time::Duration;

use embed::{
    AskRequest, Content, FunctionBackend, PermissionOutcome, Server, ServerParts, Stop, ToolClass,
    TurnContext, TurnError, TurnInput,
};

/// One turn. All it says goes through its context, so it is in the session's log before anybody sees it.
async fn count_down(input: TurnInput, context: TurnContext) -> Result<Stop, TurnError> {
    let message = context.new_message();
    let Some(from) = number(&input) else {
        context.text(message, "Say a number to count down from.").await?;
        return Ok(Stop::EndTurn);
    };
    for left in (1..=from).rev() {
        context.text(message, format!("{left} ... ")).await?;
        tokio::select! {
            () = context.cancel.cancelled() => return Ok(Stop::Cancelled),
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
    }
    let request = AskRequest::new("launch", "Launch the rocket", ToolClass::Execute);
    let said = match context.ask(request).await? {
        PermissionOutcome::Allowed => "lift-off!".to_owned(),
        PermissionOutcome::Denied { reason, .. } => format!("not launched: {reason}"),
        PermissionOutcome::Replied(answer) => answer.to_string(),
    };
    context.text(message, said).await?;
    Ok(if context.cancel.is_cancelled() { Stop::Cancelled } else { Stop::EndTurn })
}

fn number(input: &TurnInput) -> Option<u32> {
    input.content.iter().find_map(|block| match block {
        Content::Text(text) => text.trim().parse().ok(),
        _ => None,
    })
}

/// What the agent is called, and where it works if an editor names no folder.
pub fn parts() -> std::io::Result<ServerParts> {
    Ok(ServerParts::new(FunctionBackend::new(count_down), std::env::current_dir()?)
        .named("countdown", "1.0.0"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    Server::start(parts()?).serve_stdio().await?;
    Ok(())
}
