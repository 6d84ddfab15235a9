use std::sync::mpsc;

use tapecast_wire::limits::{HEADER_BYTES, PAGE_BYTES, POOL_PAGES, RECORD_ALIGN_BYTES};
use tapecast_wire::{
    Epoch, Flags, InstrumentId, Nanos, Sequence, Snapshot, SnapshotFields, TradingStatus,
    UNDEFINED_PRICE, encode_snapshot,
};

use super::{AppendError, Filled, Pool, PoolConfig, PoolError};

fn pool() -> Pool {
    Pool::new(PoolConfig::default()).unwrap()
}

fn text(bytes: &'static [u8]) -> impl FnOnce(&mut [u8]) -> Result<usize, ()> {
    move |out| {
        out[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }
}

#[test]
fn a_page_holds_many_records_and_returns_when_the_last_of_them_and_its_writer_are_gone() {
    let pool = pool();
    let mut writer = pool.loan().unwrap();
    let first = writer.append(8, text(b"first")).unwrap().share();
    let second = writer.append(16, text(b"second")).unwrap().share();
    assert_eq!((first.bytes(), second.bytes()), (&b"first"[..], &b"second"[..]));
    assert_eq!(first.page(), second.page());
    assert_eq!(second.offset() - first.offset(), RECORD_ALIGN_BYTES);
    drop(writer);
    let clone = second.clone();
    drop((first, second));
    assert_eq!(pool.free_pages(), POOL_PAGES - 1);
    assert_eq!(clone.bytes(), b"second");
    drop(clone);
    assert_eq!(pool.free_pages(), POOL_PAGES);
}

#[test]
fn the_writer_appends_behind_records_that_are_already_shared() {
    let pool = pool();
    let mut writer = pool.loan().unwrap();
    let appends = 0..PAGE_BYTES / RECORD_ALIGN_BYTES;
    let shared: Vec<_> =
        appends.map(|_| writer.append(8, text(b"12345678")).unwrap().share()).collect();
    assert!(shared.iter().all(|record| record.bytes() == b"12345678"));
    let full = writer.append(1, text(b"x")).unwrap_err();
    assert_eq!(full, AppendError::NoRoom { need: 1, have: 0 });
    drop(shared);
    assert_eq!(pool.free_pages(), POOL_PAGES - 1, "the writer still holds the page");
    drop(writer);
    assert_eq!(pool.free_pages(), POOL_PAGES);
}

#[test]
fn a_page_full_of_empty_records_still_counts_right() {
    let pool = pool();
    let mut writer = pool.loan().unwrap();
    let mut records = Vec::new();
    while let Ok(record) = writer.append(0, |_| Ok::<_, ()>(0)) {
        records.push(record.share());
    }
    assert_eq!(records.len(), PAGE_BYTES / RECORD_ALIGN_BYTES);
    drop(writer);
    assert_eq!(pool.free_pages(), POOL_PAGES - 1);
    drop(records);
    assert_eq!(pool.free_pages(), POOL_PAGES);
}

#[test]
fn a_failed_append_leaves_the_page_as_it_was() {
    let pool = pool();
    let mut writer = pool.loan().unwrap();
    let failed = writer.append(100, |_| Err::<usize, _>("no")).unwrap_err();
    assert_eq!(failed, AppendError::Write("no"));
    assert_eq!(writer.room(), PAGE_BYTES);
    drop(writer);
    assert_eq!(pool.free_pages(), POOL_PAGES);
}

#[test]
fn all_pages_can_be_loaned_and_no_more() {
    let pool = pool();
    let loans: Vec<_> = (0..POOL_PAGES).map(|_| pool.loan().unwrap()).collect();
    assert!(pool.loan().is_none());
    assert_eq!(pool.free_pages(), 0);
    drop(loans);
    assert_eq!(pool.free_pages(), POOL_PAGES);
}

#[test]
fn what_fills_a_unit_behind_a_record_is_zero_whatever_was_there_before() {
    let pool = pool();
    // Every page once full of something, then all of them back.
    let dirty: Vec<_> = (0..POOL_PAGES)
        .map(|_| {
            let fill = |room: &mut [u8]| {
                room.fill(0xEE);
                Ok::<_, ()>(room.len())
            };
            pool.loan().unwrap().append(PAGE_BYTES, fill).unwrap()
        })
        .collect();
    drop(dirty);
    let mut writer = pool.loan().unwrap();
    let record = writer.append(100, text(b"short")).unwrap().share();
    let (base, _) = pool.extent();
    for offset in 5..RECORD_ALIGN_BYTES {
        // SAFETY: the offset lies within the record's page, and so within the pool's mapping.
        let byte = unsafe { base.add(record.offset() + offset) };
        // SAFETY: the byte is initialised, and `writer`, which may write it, does not.
        assert_eq!(unsafe { byte.read() }, 0, "byte {offset}");
    }
}

#[test]
fn records_outlive_the_last_handle_of_their_pool() {
    let pool = pool();
    let mut writer = pool.loan().unwrap();
    let record = writer.append(8, text(b"here")).unwrap().share();
    drop((pool, writer));
    assert_eq!(record.bytes(), b"here");
}

#[test]
fn stamping_changes_ts_publish_and_nothing_else() {
    let fields = SnapshotFields {
        instrument_id: InstrumentId(7),
        flags: Flags::LOCKED,
        trading_status: TradingStatus::Trading,
        epoch: Epoch(5),
        channel_sequence: Sequence(11),
        instrument_sequence: Sequence(3),
        feed_sequence: 99,
        ts_event: 1,
        ts_recv: 2,
        last_trade_price: UNDEFINED_PRICE,
        last_trade_quantity: 0,
    };
    let pool = pool();
    let mut writer = pool.loan().unwrap();
    let encode = |out: &mut [u8]| encode_snapshot(out, &fields, &[], &[]);
    let mut filled = writer.append(HEADER_BYTES, encode).unwrap();
    let mut wanted = *Snapshot::parse(filled.bytes()).unwrap().header();
    wanted.ts_publish = 1234;
    filled.stamp_publish(Nanos(1234));
    assert_eq!(filled.ts_publish(), Nanos(1234));
    assert_eq!(*Snapshot::parse(filled.share().bytes()).unwrap().header(), wanted);
}

#[test]
fn pages_cross_threads_and_every_one_of_them_comes_back() {
    const RECORDS: u64 = 200_000;
    let pool = pool();
    let (sender, receiver) = mpsc::sync_channel::<Filled>(256);
    let readers: Vec<_> = (0..3).map(|_| mpsc::sync_channel(64)).collect();
    let (to_readers, from_sharer): (Vec<_>, Vec<_>) = readers.into_iter().unzip();
    std::thread::scope(|scope| {
        let source = pool.clone();
        scope.spawn(move || {
            let mut writer = source.loan();
            for number in 0..RECORDS {
                let encode = |out: &mut [u8]| {
                    out.fill(number as u8);
                    out[..8].copy_from_slice(&number.to_le_bytes());
                    Ok::<_, ()>(out.len())
                };
                let len = 64 + (number as usize % 16) * 8;
                let filled = loop {
                    match writer.as_mut().map(|page| page.append(len, encode)) {
                        Some(Ok(filled)) => break filled,
                        _ => writer = source.loan(),
                    }
                    if writer.is_none() {
                        std::thread::yield_now();
                    }
                };
                sender.send(filled).unwrap();
            }
        });
        scope.spawn(move || {
            for filled in receiver {
                let shared = filled.share();
                to_readers.iter().for_each(|reader| reader.send(shared.clone()).unwrap());
            }
        });
        for reader in from_sharer {
            scope.spawn(move || {
                let mut expected = 0u64;
                for record in reader {
                    let (number, rest) = record.bytes().split_first_chunk::<8>().unwrap();
                    assert_eq!(u64::from_le_bytes(*number), expected);
                    assert!(rest.iter().all(|byte| *byte == expected as u8));
                    expected += 1;
                }
                assert_eq!(expected, RECORDS);
            });
        }
    });
    assert_eq!(pool.free_pages(), POOL_PAGES);
}

#[test]
fn huge_pages_work_or_the_refusal_names_the_numbers() {
    match Pool::new(PoolConfig { huge_pages: true }) {
        Ok(pool) => assert!(pool.loan().is_some()),
        Err(error @ PoolError::HugePages { needed: 2, .. }) => {
            assert!(error.to_string().contains("needs 2 huge pages of 2 MiB"), "{error}");
            assert!(error.to_string().contains("vm.nr_hugepages"), "{error}");
        }
        Err(other) => panic!("{other}"),
    }
}
