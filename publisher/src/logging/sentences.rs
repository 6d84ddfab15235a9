//! Lines of the journal that say all they know: fields behind the message, as on stderr, and each
//! as a field of its own too.

use std::array;
use std::fmt::{Debug, Write};

use tracing::field::{Field, Value, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// An event has no more fields.
const FIELDS_MAX: usize = 32;
/// The field that is the message.
const MESSAGE: &str = "message";

/// Has `journalctl` show by itself what otherwise only its longer formats do.
#[derive(Debug)]
pub(super) struct Sentences<L>(pub(super) L);

impl<S, L> Layer<S> for Sentences<L>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    L: Layer<S>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        self.0.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        self.0.on_record(id, values, context);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let fields = event.metadata().fields();
        let Some(message) = fields.field(MESSAGE) else {
            return self.0.on_event(event, context);
        };
        let mut said = Said::default();
        event.record(&mut said);
        let sentence = said.sentence();
        let mut pairs: [(&Field, Option<&dyn Value>); FIELDS_MAX] =
            array::from_fn(|_| (&message, None));
        pairs[0].1 = Some(&sentence);
        for (pair, (field, text)) in pairs[1..].iter_mut().zip(&said.fields) {
            *pair = (field, Some(text));
        }
        self.0.on_event(&Event::new(event.metadata(), &fields.value_set(&pairs)), context);
    }
}

/// What an event says.
#[derive(Debug, Default)]
struct Said {
    message: String,
    fields: Vec<(Field, String)>,
}

impl Said {
    fn sentence(&self) -> String {
        let mut sentence = self.message.clone();
        for (field, text) in &self.fields {
            // Writing to a text cannot fail.
            let _written = write!(sentence, " {field}={text}");
        }
        sentence
    }

    fn note(&mut self, field: &Field, text: String) {
        match field.name() {
            MESSAGE => self.message = text,
            _ => self.fields.push((field.clone(), text)),
        }
    }
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.note(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.note(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::info;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Writes down what reaches it.
    #[derive(Clone, Default)]
    struct Recorder(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Recorder {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut said = Said::default();
            event.record(&mut said);
            let mut lines = self.0.lock().unwrap();
            lines.push(said.message);
            lines.extend(said.fields.iter().map(|(field, text)| format!("{field}: {text}")));
        }
    }

    #[test]
    fn the_message_ends_with_the_fields_and_they_stay_fields() {
        let recorder = Recorder::default();
        let subscriber = tracing_subscriber::registry().with(Sentences(recorder.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let nothing: Option<u32> = None;
            info!(session = 3, name = "desk 1", nothing, ratio = %0.5, "attached");
            info!("only {}", "text");
            info!(alone = true);
        });
        let lines = recorder.0.lock().unwrap();
        let attached = ["attached session=3 name=desk 1 ratio=0.5"];
        let fields = ["session: 3", "name: desk 1", "ratio: 0.5"];
        let expected = [&attached[..], &fields, &["only text"], &["", "alone: true"]].concat();
        assert_eq!(*lines, expected);
    }
}
