#!/bin/sh
# Builds the .deb and the .rpm into build/packages, from the root of the source.
# GO, VERSION, MAINTAINER, SOURCE_DATE_EPOCH, GOARCH and OUT can be set. The same
# source, Go and C compiler give the same bytes.
set -eu
cd "$(dirname "$0")/../.."
GO=${GO:-go}
# Newer ones need modules that are not on every mirror. It is run from here and
# not from go.mod, where it would bring 60 modules along.
NFPM=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
OUT=${OUT:-build/packages}
STAGE=$OUT/stage

if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
	SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) || SOURCE_DATE_EPOCH=$(stat -c %Y CHANGELOG.md)
fi
if [ -z "${VERSION:-}" ]; then
	VERSION=$(git describe --tags --exact-match 2>/dev/null) || VERSION=0.0.0-dev$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M)
fi
VERSION=${VERSION#v}
MAINTAINER=${MAINTAINER:-rocelink authors <maintainers@rocelink.invalid>}
ARCH=$($GO env GOARCH)
case $ARCH in
amd64 | arm64) ;;
*) echo "packages: no package for $ARCH: set GOARCH to amd64 or arm64" >&2; exit 1 ;;
esac

rm -rf "$OUT"
mkdir -p "$STAGE"

# The ibverbs provider needs a C compiler for the target and the headers.
cgo=0
tags=
if [ "$($GO env CGO_ENABLED)" = 1 ] && printf '#include <infiniband/verbs.h>\n' | $($GO env CC) -E -x c - >/dev/null 2>&1; then
	cgo=1
	tags=ibverbs
else
	echo 'packages: without RDMA devices (no C compiler, or no infiniband/verbs.h: libibverbs-dev, rdma-core-devel)' >&2
fi
build() { # program, cgo, tags
	echo "building $1 (cgo $2${3:+, $3})"
	CGO_ENABLED=$2 $GO build -trimpath -buildvcs=false -tags "$3" -ldflags '-s -w -buildid=' -o "$STAGE/$1" "./agent/cmd/$1"
}
build rocelinkd "$cgo" "$tags"
build rocectl 0 ''

# What rocelinkd is linked to says what the packages depend on.
DEB_LIBC='' DEB_IBVERBS='' DEB_PROVIDERS='' RPM_LIBC='' RPM_IBVERBS=''
if [ "$cgo" = 1 ]; then
	for lib in $(readelf -d "$STAGE/rocelinkd" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
		case $lib in
		libc.so.6 | libpthread.so.0 | libresolv.so.2 | libdl.so.2 | ld-linux-*)
			glibc=$(objdump -T "$STAGE/rocelinkd" | sed -n 's/.*(\{0,1\}GLIBC_\([0-9.]*\).*/\1/p' | sort -uV | tail -n 1)
			DEB_LIBC="libc6 (>= $glibc)"
			RPM_LIBC="libc.so.6(GLIBC_$glibc)(64bit)"
			;;
		libibverbs.so.1)
			abi=$(objdump -T "$STAGE/rocelinkd" | sed -n 's/.*(\{0,1\}IBVERBS_\([0-9.]*\).*/\1/p' | sort -uV | tail -n 1)
			# The release of rdma-core that brought it (libibverbs/libibverbs.map.in).
			case $abi in
			1.0 | 1.1) since=1.1.6 ;;
			1.5) since=20 ;;
			1.6) since=24 ;;
			1.7) since=25 ;;
			1.8) since=28 ;;
			1.9) since=30 ;;
			1.10) since=31 ;;
			1.11) since=32 ;;
			1.12) since=34 ;;
			1.13) since=35 ;;
			1.14) since=36 ;;
			*) echo "packages: rocelinkd needs IBVERBS_$abi: say in $0 which libibverbs has it" >&2; exit 1 ;;
			esac
			DEB_IBVERBS="libibverbs1 (>= $since)"
			DEB_PROVIDERS=ibverbs-providers
			RPM_IBVERBS="libibverbs.so.1(IBVERBS_$abi)(64bit)"
			;;
		*)
			echo "packages: rocelinkd is linked to $lib: say in $0 which package holds it" >&2
			exit 1
			;;
		esac
	done
fi

# The notices that the licences of what is linked in ask for.
rule=--------------------------------------------------------------------------------
$GO list -tags "$tags" -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' \
	./agent/cmd/rocelinkd ./agent/cmd/rocectl >"$STAGE/modules"
{
	echo "The programs of rocelink contain these Go modules and the Go runtime and standard library."
	printf '\n%s\nGo\n\n' "$rule"
	cat "$($GO env GOROOT)/LICENSE"
	sort -u "$STAGE/modules" | while read -r module version dir; do
		found=
		for f in "$dir"/LICEN[CS]E* "$dir"/COPYING* "$dir"/NOTICE*; do
			[ -f "$f" ] || continue
			found=1
			printf '\n%s\n%s %s, %s\n\n' "$rule" "$module" "$version" "${f##*/}"
			cat "$f"
		done
		[ -n "$found" ] || { echo "packages: $module has no licence file" >&2; exit 1; }
	done
} >"$STAGE/third-party-licences.txt"

export SOURCE_DATE_EPOCH VERSION MAINTAINER ARCH STAGE DEB_LIBC DEB_IBVERBS DEB_PROVIDERS RPM_LIBC RPM_IBVERBS
for kind in deb rpm; do
	# For this machine, whatever the packages are for.
	GOOS='' GOARCH='' GOFLAGS='' $GO run "$NFPM" package --config agent/packaging/nfpm.yaml --packager $kind --target "$OUT/"
done
