//! Writes Nasdaq TotalView-ITCH 5.0: the counterpart of the decoder, for our own exchange.
//!
//! ```text
//! BinaryFILE = { length u16 | message }
//! message    = type u8 | locate u16 | tracking u16 | timestamp u48 | fields
//! ```
//!
//! All integers are big-endian; prices are in 1e-4, timestamps in nanoseconds since midnight in
//! New York.

use super::Side;

/// A symbol, padded with spaces on the right.
pub type Stock = [u8; 8];

/// What every message starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItchHeader {
    /// The symbol's number for the day; 0 in messages about the whole market.
    pub locate: u16,
    /// Nasdaq's own tracking number.
    pub tracking: u16,
    /// Since midnight, 48 bits.
    pub timestamp_ns: u64,
}

/// A message, without its header. `price` is in 1e-4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the specification")]
pub enum ItchMessage {
    /// `S`: `O`, `S`, `Q`, `M`, `E`, `C`.
    SystemEvent { code: u8 },
    /// `R`: a symbol, common stock, with its round lot.
    Directory { stock: Stock, round_lot: u32 },
    /// `H`: `H`alted, `P`aused, `Q`uotation only, `T`rading, with a reason.
    TradingAction { stock: Stock, state: u8, reason: [u8; 4] },
    /// `A`
    Add { reference: u64, side: Side, shares: u32, stock: Stock, price: u32 },
    /// `F`
    AddAttributed {
        reference: u64,
        side: Side,
        shares: u32,
        stock: Stock,
        price: u32,
        mpid: [u8; 4],
    },
    /// `E`
    Executed { reference: u64, shares: u32, match_number: u64 },
    /// `C`
    ExecutedWithPrice {
        reference: u64,
        shares: u32,
        match_number: u64,
        printable: bool,
        price: u32,
    },
    /// `X`
    Cancel { reference: u64, shares: u32 },
    /// `D`
    Delete { reference: u64 },
    /// `U`
    Replace { old_reference: u64, reference: u64, shares: u32, price: u32 },
    /// `P`: an execution against a hidden order.
    Trade { side: Side, shares: u32, stock: Stock, price: u32, match_number: u64 },
    /// `Q`: `O`pening, `C`losing or `H`alt cross.
    Cross { shares: u64, stock: Stock, price: u32, match_number: u64, kind: u8 },
}

/// A symbol in the form of the wire; cut when it is longer than eight bytes.
#[must_use]
pub fn stock(symbol: &str) -> Stock {
    let mut stock = [b' '; 8];
    for (place, byte) in stock.iter_mut().zip(symbol.bytes()) {
        *place = byte;
    }
    stock
}

/// Appends one message with its length prefix.
pub fn encode_itch(out: &mut Vec<u8>, header: ItchHeader, message: &ItchMessage) {
    let start = out.len();
    out.extend_from_slice(&[0, 0, kind(message)]);
    out.extend_from_slice(&header.locate.to_be_bytes());
    out.extend_from_slice(&header.tracking.to_be_bytes());
    out.extend_from_slice(&header.timestamp_ns.to_be_bytes()[2..]);
    fields(out, message);
    // No message is longer than 44 bytes.
    let length = (out.len() - start - 2) as u16;
    out[start..start + 2].copy_from_slice(&length.to_be_bytes());
}

const fn kind(message: &ItchMessage) -> u8 {
    match message {
        ItchMessage::SystemEvent { .. } => b'S',
        ItchMessage::Directory { .. } => b'R',
        ItchMessage::TradingAction { .. } => b'H',
        ItchMessage::Add { .. } => b'A',
        ItchMessage::AddAttributed { .. } => b'F',
        ItchMessage::Executed { .. } => b'E',
        ItchMessage::ExecutedWithPrice { .. } => b'C',
        ItchMessage::Cancel { .. } => b'X',
        ItchMessage::Delete { .. } => b'D',
        ItchMessage::Replace { .. } => b'U',
        ItchMessage::Trade { .. } => b'P',
        ItchMessage::Cross { .. } => b'Q',
    }
}

fn fields(out: &mut Vec<u8>, message: &ItchMessage) {
    match *message {
        ItchMessage::SystemEvent { code } => out.push(code),
        ItchMessage::Directory { stock, round_lot } => directory(out, stock, round_lot),
        ItchMessage::TradingAction { stock, state, reason } => {
            out.extend_from_slice(&stock);
            out.extend_from_slice(&[state, b' ']);
            out.extend_from_slice(&reason);
        }
        ItchMessage::Add { reference, side, shares, stock, price } => {
            add(out, reference, side, shares, (stock, price));
        }
        ItchMessage::AddAttributed { reference, side, shares, stock, price, mpid } => {
            add(out, reference, side, shares, (stock, price));
            out.extend_from_slice(&mpid);
        }
        ItchMessage::Executed { reference, shares, match_number } => {
            executed(out, reference, shares, match_number);
        }
        ItchMessage::ExecutedWithPrice { reference, shares, match_number, printable, price } => {
            executed(out, reference, shares, match_number);
            out.push(if printable { b'Y' } else { b'N' });
            out.extend_from_slice(&price.to_be_bytes());
        }
        ItchMessage::Cancel { reference, shares } => {
            out.extend_from_slice(&reference.to_be_bytes());
            out.extend_from_slice(&shares.to_be_bytes());
        }
        ItchMessage::Delete { reference } => out.extend_from_slice(&reference.to_be_bytes()),
        ItchMessage::Replace { old_reference, reference, shares, price } => {
            out.extend_from_slice(&old_reference.to_be_bytes());
            out.extend_from_slice(&reference.to_be_bytes());
            out.extend_from_slice(&shares.to_be_bytes());
            out.extend_from_slice(&price.to_be_bytes());
        }
        ItchMessage::Trade { side, shares, stock, price, match_number } => {
            add(out, 0, side, shares, (stock, price));
            out.extend_from_slice(&match_number.to_be_bytes());
        }
        ItchMessage::Cross { shares, stock, price, match_number, kind } => {
            out.extend_from_slice(&shares.to_be_bytes());
            out.extend_from_slice(&stock);
            out.extend_from_slice(&price.to_be_bytes());
            out.extend_from_slice(&match_number.to_be_bytes());
            out.push(kind);
        }
    }
}

fn directory(out: &mut Vec<u8>, stock: Stock, round_lot: u32) {
    out.extend_from_slice(&stock);
    // Global Select market, normal financial status.
    out.extend_from_slice(b"QN");
    out.extend_from_slice(&round_lot.to_be_bytes());
    // Odd lots allowed; common stock, no subtype; a test symbol; no short sale threshold; no IPO;
    // price tier 1; no fund: leverage 0, not inverse.
    out.extend_from_slice(b"NCZ TNN1N");
    out.extend_from_slice(&[0; 4]);
    out.push(b'N');
}

fn add(out: &mut Vec<u8>, reference: u64, side: Side, shares: u32, what: (Stock, u32)) {
    let (stock, price) = what;
    out.extend_from_slice(&reference.to_be_bytes());
    out.push(match side {
        Side::Bid => b'B',
        Side::Ask => b'S',
    });
    out.extend_from_slice(&shares.to_be_bytes());
    out.extend_from_slice(&stock);
    out.extend_from_slice(&price.to_be_bytes());
}

fn executed(out: &mut Vec<u8>, reference: u64, shares: u32, match_number: u64) {
    out.extend_from_slice(&reference.to_be_bytes());
    out.extend_from_slice(&shares.to_be_bytes());
    out.extend_from_slice(&match_number.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(message: &ItchMessage) -> Vec<u8> {
        let header = ItchHeader { locate: 0x0102, tracking: 3, timestamp_ns: 0x0a0b_0c0d_0e0f };
        let mut out = Vec::new();
        encode_itch(&mut out, header, message);
        out
    }

    #[test]
    fn every_message_has_the_length_that_the_specification_gives_its_type() {
        let (stock, side) = (stock("TC0001"), Side::Bid);
        let (reference, shares, price, match_number) = (1, 2, 3, 4);
        let messages = [
            (ItchMessage::SystemEvent { code: b'O' }, 12),
            (ItchMessage::Directory { stock, round_lot: 100 }, 39),
            (ItchMessage::TradingAction { stock, state: b'T', reason: *b"    " }, 25),
            (ItchMessage::Add { reference, side, shares, stock, price }, 36),
            (
                ItchMessage::AddAttributed {
                    reference,
                    side,
                    shares,
                    stock,
                    price,
                    mpid: *b"TAPE",
                },
                40,
            ),
            (ItchMessage::Executed { reference, shares, match_number }, 31),
            (
                ItchMessage::ExecutedWithPrice {
                    reference,
                    shares,
                    match_number,
                    printable: true,
                    price,
                },
                36,
            ),
            (ItchMessage::Cancel { reference, shares }, 23),
            (ItchMessage::Delete { reference }, 19),
            (ItchMessage::Replace { old_reference: 9, reference, shares, price }, 35),
            (ItchMessage::Trade { side, shares, stock, price, match_number }, 44),
            (ItchMessage::Cross { shares: 5, stock, price, match_number, kind: b'O' }, 40),
        ];
        for (message, length) in messages {
            let bytes = encoded(&message);
            assert_eq!(bytes.len(), length + 2, "{message:?}");
            assert_eq!(bytes[..2], (length as u16).to_be_bytes(), "{message:?}");
        }
    }

    #[test]
    fn an_add_is_byte_for_byte_as_specified() {
        let message = ItchMessage::Add {
            reference: 0x1122_3344_5566_7788,
            side: Side::Ask,
            shares: 300,
            stock: stock("TC0001"),
            price: 1_234_500,
        };
        let expected = b"\x00\x24A\x01\x02\x00\x03\x0a\x0b\x0c\x0d\x0e\x0f\
            \x11\x22\x33\x44\x55\x66\x77\x88S\x00\x00\x01\x2cTC0001  \x00\x12\xd6\x44";
        assert_eq!(encoded(&message), expected);
    }
}
