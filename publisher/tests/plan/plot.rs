//! The plot, as a reader of the picture meets it.

use std::collections::BTreeMap;

use tempfile::TempDir;

use super::command::{plan, refusal, stdout};

#[test]
fn the_plot_is_xml_with_two_curves_for_each_number_of_lanes() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("latency.svg");
    let output = plan(&["--lanes", "6", "--plot", path.to_str().unwrap()]);
    assert!(stdout(&output).contains("BOTTLENECK"), "the plan is printed all the same");
    let text = std::fs::read_to_string(&path).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap();
    let words: String = document.descendants().filter_map(|node| node.text()).collect();
    for word in ["model, nothing was measured", "payload of a snapshot, bytes", "µs (model)"] {
        assert!(words.contains(word), "{words}");
    }
    for name in ["posting free", "1 lane", "2 lanes", "4 lanes", "6 lanes (asked for)", "8 lanes"] {
        assert!(words.contains(name), "{name}: {words}");
    }
    let mut curves = BTreeMap::new();
    let long = |node: &roxmltree::Node<'_, '_>| {
        let points = node.attribute("points").unwrap_or_default();
        node.has_tag_name("polyline") && points.split_whitespace().count() > 50
    };
    for curve in document.descendants().filter(long) {
        *curves.entry(curve.attribute("stroke").unwrap()).or_insert(0) += 1;
    }
    assert_eq!(curves.len(), 6, "five numbers of lanes and free posting: {curves:?}");
    assert!(curves.values().all(|count| *count == 2), "mean and last: {curves:?}");
}

/// The plot, as (document, words in it).
fn plotted(arguments: &[&str]) -> (String, String) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("latency.svg");
    stdout(&plan(&[&["--plot", path.to_str().unwrap()], arguments].concat()));
    let text = std::fs::read_to_string(&path).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap();
    let words = document.descendants().filter_map(|node| node.text()).collect();
    (text, words)
}

/// Smallest and largest of one coordinate of all long curves of a plot.
fn extent_of_curves(svg: &str, coordinate: usize) -> (f64, f64) {
    let document = roxmltree::Document::parse(svg).unwrap();
    let points = document.descendants().filter_map(|node| node.attribute("points"));
    let long = points.filter(|points| points.split_whitespace().count() > 50);
    let values = long
        .flat_map(|points| points.split_whitespace())
        .map(|point| point.split(',').nth(coordinate).unwrap().parse::<f64>().unwrap());
    values.fold((f64::INFINITY, 0.0), |(least, most), value| (value.min(least), value.max(most)))
}

fn height_of(svg: &str, words: &str) -> Option<f64> {
    let document = roxmltree::Document::parse(svg).unwrap();
    let node = document
        .descendants()
        .find(|node| node.has_tag_name("text") && node.text().is_some_and(|t| t.contains(words)))?;
    node.attribute("y").map(|y| y.parse().unwrap())
}

#[test]
fn the_headline_is_drawn_where_it_belongs_or_said_to_be_off_the_plot() {
    // Latencies from 0.1 µs on: the line lies above the curves of small payloads.
    let (near, words) = plotted(&["--base-latency-us", "0.1", "--fetch-us", "0", "-n", "1"]);
    assert!(words.contains("headline mean 1.80 µs"), "{words}");
    let (highest, _) = extent_of_curves(&near, 1);
    assert!(height_of(&near, "headline mean").unwrap() < highest - 50.0, "above all curves");
    let (_, words) = plotted(&["--base-latency-us", "1000"]);
    assert!(words.contains("headline mean 1.80 µs: below this picture"), "{words}");
}

#[test]
fn names_of_curves_stand_beside_the_curves() {
    for arguments in [&[][..], &["--base-latency-us", "1000", "--rate", "1G", "--post-ns", "10000"]]
    {
        let (svg, _) = plotted(arguments);
        let document = roxmltree::Document::parse(&svg).unwrap();
        let (_, right) = extent_of_curves(&svg, 0);
        let named = document.descendants().filter(|node| {
            node.text().is_some_and(|text| text.contains("lane") && !text.contains("plan"))
        });
        let mut names = 0;
        for name in named.filter(|node| node.has_tag_name("text")) {
            let x: f64 = name.attribute("x").unwrap().parse().unwrap();
            assert!(x > right, "{arguments:?}: {:?} at {x}, curves up to {right}", name.text());
            names += 1;
        }
        assert_eq!(names, 4, "1, 2, 4 and 8 lanes");
    }
}

#[test]
fn a_payload_below_64_bytes_is_where_the_axis_says() {
    let (svg, words) = plotted(&["--payload", "1"]);
    assert!(words.contains("1 B asked for"), "{words}");
    let document = roxmltree::Document::parse(&svg).unwrap();
    let marks: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
    assert!(marks.iter().any(|mark| mark.trim() == "8"), "the axis begins at 1: {marks:?}");
}

#[test]
fn a_plot_never_replaces_a_file_unless_told_to() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("kept.svg");
    std::fs::write(&path, "mine").unwrap();
    let name = path.to_str().unwrap();
    let line = refusal(1, &["--plot", name]);
    for word in [name, "exists", "--force"] {
        assert!(line.contains(word), "{line}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    assert!(plan(&["--plot", name, "--force"]).status.success());
    assert!(std::fs::read_to_string(&path).unwrap().contains("<svg"));
}

#[test]
fn a_plot_that_cannot_be_written_is_refused_in_a_sentence() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("no/such/folder/x.svg");
    let taken = folder.path().join("folder.svg");
    std::fs::create_dir(&taken).unwrap();
    for path in [&missing, &taken] {
        let name = path.to_str().unwrap();
        let line = refusal(1, &["--plot", name, "--force"]);
        assert!(line.contains(name) && line.contains("--plot"), "{line}");
    }
    assert!(!missing.exists());
}
