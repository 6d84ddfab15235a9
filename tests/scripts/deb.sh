#!/usr/bin/env bash
# Builds the Debian package: daemon, subscriber command, unit, configuration, dashboards, manual
# pages, completions. Prints the path of the package as its last line.
#
#   deb.sh [--profile release|dev] [--version VERSION] [--out DIR] [--quick]
#
# --version overrides that of the workspace, --quick compresses little (for tests). It takes
# dpkg-deb alone, not cargo-deb: an upgrade must restart the publisher rather than stop and start
# it, or systemd lets go of the ring, so the scripts of the package are our own (configs/deb) and
# cargo-deb would only copy files, after two minutes of being built itself.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() { echo "deb: $*" >&2; exit 1; }

profile=release version='' out='' compression=(-Zxz)
while [[ $# -gt 0 ]]; do
    case $1 in
    --profile) profile=$2; shift 2 ;;
    --version) version=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --quick) compression=(-Zgzip -z1); shift ;;
    *) fail "unknown option $1: see the top of $0" ;;
    esac
done
for program in dpkg-deb dpkg-shlibdeps strip; do
    command -v "$program" >/dev/null || fail "$program is missing: apt-get install dpkg-dev binutils"
done

libclang=$(tests/scripts/prepare.sh --libclang-path)
[[ -z $libclang ]] || export LIBCLANG_PATH=$libclang
cargo build -q --profile "$profile" -p tapecast-publisher -p tapecast-subscriber --bins
target=${CARGO_TARGET_DIR:-target}
built=$target/$([[ $profile == dev ]] && echo debug || echo "$profile")
out=${out:-$target/deb}
version=${version:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)-1}
# The same sources make the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d -t tapecast-deb.XXXXXX)
trap 'rm -rf "$work"' EXIT
root=$work/root doc=$work/root/usr/share/doc/tapecast
umask 022

put() { # MODE SOURCE DESTINATION
    install -D -m "$1" "$2" "$root/$3"
}

programs() {
    local program
    for program in tapecast-publisher tapecast-subscriber; do
        put 755 "$built/$program" "usr/bin/$program"
        strip --strip-unneeded --remove-section=.comment "$root/usr/bin/$program"
    done
}

service() {
    put 644 configs/systemd/tapecast-publisher.service lib/systemd/system/tapecast-publisher.service
    put 644 configs/systemd/tapecast.sysusers usr/lib/sysusers.d/tapecast.conf
    put 644 configs/systemd/publisher.toml etc/tapecast/publisher.toml
}

pages() {
    local program page
    for program in tapecast-publisher tapecast-subscriber; do
        "$built/$program" pages --out "$work/pages"
        put 644 "$work/pages/$program.bash" "usr/share/bash-completion/completions/$program"
        put 644 "$work/pages/_$program" "usr/share/zsh/vendor-completions/_$program"
        put 644 "$work/pages/$program.fish" "usr/share/fish/vendor_completions.d/$program.fish"
    done
    for page in "$work"/pages/*.1; do
        # `help tail` says what `tail --help` does.
        [[ $page != *-help*.1 ]] || continue
        put 644 "$page" "usr/share/man/man1/${page##*/}"
        gzip -9n "$root/usr/share/man/man1/${page##*/}"
    done
}

documents() {
    local file
    put 644 configs/deb/copyright usr/share/doc/tapecast/copyright
    put 644 configs/publisher.toml usr/share/doc/tapecast/publisher.toml
    for file in configs/systemd/drop-ins/*.conf; do
        put 644 "$file" "usr/share/doc/tapecast/drop-ins/${file##*/}"
    done
    {
        echo "tapecast ($version) unstable; urgency=medium"
        echo
        echo "  * See https://github.com/tapecast/tapecast."
        echo
        echo " -- tapecast <tapecast@users.noreply.github.com>  $(date -uRd "@$SOURCE_DATE_EPOCH")"
    } >"$doc/changelog.Debian"
    gzip -9n "$doc/changelog.Debian"
}

# Whatever is there: dashboards, and the rules and scrape configuration that go with them.
monitoring() {
    local folder file
    for folder in dashboards configs/prometheus; do
        [[ -d $folder ]] || continue
        while IFS= read -r file; do
            put 644 "$file" "usr/share/tapecast/${folder##*/}/${file#"$folder"/}"
        done < <(find "$folder" -type f)
    done
}

control() {
    local depends size file
    install -d "$root/DEBIAN" "$work/shlibs/debian"
    printf 'Source: tapecast\n\nPackage: tapecast\nArchitecture: any\n' >"$work/shlibs/debian/control"
    depends=$(cd "$work/shlibs" && dpkg-shlibdeps -O "$root"/usr/bin/tapecast-* 2>/dev/null)
    size=$(du -sk --apparent-size "$root" | cut -f1)
    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$(dpkg --print-architecture)/" \
        -e "s/@SIZE@/$size/" -e "s/@DEPENDS@/${depends#shlibs:Depends=}/" \
        configs/deb/control >"$root/DEBIAN/control"
    echo /etc/tapecast/publisher.toml >"$root/DEBIAN/conffiles"
    for file in postinst prerm postrm; do
        put 755 "configs/deb/$file" "DEBIAN/$file"
    done
    (cd "$root" && find usr lib etc -type f -print0 | sort -z | xargs -0 md5sum) \
        >"$work/md5sums"
    install -m 644 "$work/md5sums" "$root/DEBIAN/md5sums"
}

programs
service
pages
documents
monitoring
control
mkdir -p "$out"
package=$out/tapecast_${version}_$(dpkg --print-architecture).deb
find "$root" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group "${compression[@]}" --build "$root" "$package" >/dev/null
echo "$package"
