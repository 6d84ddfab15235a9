//! Colour, only where it is wanted.

use std::fmt;
use std::io::IsTerminal;

use super::args::ColorArg;

/// What a piece of text means; how it looks follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Heading,
    Dim,
    Symbol,
    Bid,
    Ask,
    Warning,
    Bad,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Heading | Self::Symbol => "\x1b[1m",
            Self::Dim => "\x1b[2m",
            Self::Bid => "\x1b[32m",
            Self::Ask => "\x1b[31m",
            Self::Warning => "\x1b[33m",
            Self::Bad => "\x1b[1;31m",
        }
    }
}

/// Whether to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// Follows the choice and, where it is left open, the stream and `NO_COLOR`.
    pub(crate) fn choose(choice: ColorArg, stream: &impl IsTerminal) -> Self {
        let on = match choice {
            ColorArg::Always => true,
            ColorArg::Never => false,
            ColorArg::Auto => {
                let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                stream.is_terminal() && !refused
            }
        };
        Self { on }
    }

    /// `text` in the look of `tone`. Pad the text before, not after.
    pub(crate) const fn tint<T: fmt::Display>(self, tone: Tone, text: T) -> Tinted<T> {
        Tinted { code: if self.on { tone.code() } else { "" }, text }
    }
}

/// Text with its look.
pub(crate) struct Tinted<T> {
    code: &'static str,
    text: T,
}

impl<T: fmt::Display> fmt::Display for Tinted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.code.is_empty() {
            return self.text.fmt(f);
        }
        f.write_str(self.code)?;
        // The formatter's width reaches the text, so the codes do not count as columns.
        self.text.fmt(f)?;
        f.write_str("\x1b[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_does_not_disturb_alignment() {
        let paint = Paint { on: true };
        assert_eq!(format!("{:>4}|", paint.tint(Tone::Bid, "9")), "\x1b[32m   9\x1b[0m|");
        let plain = Paint { on: false };
        assert_eq!(format!("{:>4}|", plain.tint(Tone::Bid, "9")), "   9|");
    }
}
