//! Replaces images by a note, for a model that cannot look at images.

use crate::model::{Image, Message};

pub(crate) const WARNING: &str =
    "this model cannot look at images, so they were left out; choose another model to show them";

/// The messages for a model that cannot look at images.
pub(crate) fn without_images(mut messages: Vec<Message>) -> Vec<Message> {
    for message in &mut messages {
        if let Message::User { text, images } | Message::ToolResult { text, images, .. } = message
            && !images.is_empty()
        {
            let notes: Vec<String> = images.drain(..).map(note).collect();
            let blank = if text.is_empty() { "" } else { "\n" };
            *text = format!("{text}{blank}{}", notes.join("\n")).into();
        }
    }
    messages
}

fn note(image: Image) -> String {
    format!("[an image ({}) was left out: you cannot look at images]", image.mime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_said_to_have_been_there() {
        let image = Image { mime: "image/png".into(), data: "AAAA".into() };
        let seen = vec![
            Message::User { text: "look".into(), images: vec![image.clone(), image.clone()] },
            Message::User { text: "".into(), images: vec![image] },
            Message::User { text: "plain".into(), images: vec![] },
        ];
        let note = "[an image (image/png) was left out: you cannot look at images]";
        let texts = without_images(seen).into_iter().map(|message| match message {
            Message::User { text, images } if images.is_empty() => text.to_string(),
            other => panic!("{other:?}"),
        });
        assert_eq!(
            texts.collect::<Vec<_>>(),
            [format!("look\n{note}\n{note}"), note.to_owned(), "plain".to_owned()]
        );
    }
}
