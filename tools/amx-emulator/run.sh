#!/usr/bin/env bash
# Runs the tests of one package on an emulated Sapphire Rapids, which has AMX: Bochs, a
# Debian kernel, and nothing else in it than the test binary.
#
#   tools/amx-emulator/run.sh                                 # kernels/gemm, short
#   tools/amx-emulator/run.sh ./kernels/dense -test.run Tower # another package, other flags
#
# Needs Debian 12 or newer on amd64 (apt-get, dpkg, libmagic), a C++ compiler and Go; no root. The
# first run downloads some 90 MB and builds Bochs, minutes on one core; all of it stays in
# .oracles/amx-emulator. The output is in .oracles/amx-emulator/serial.txt. The status is
# that of the tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
repo=$PWD
tools=$repo/tools/amx-emulator
work=$repo/.oracles/amx-emulator
package=${1:-./kernels/gemm}
shift || true
# The ceiling spins for a time that the machine's clock takes for ever to count.
[ $# -gt 0 ] || set -- -test.v -test.short -test.skip=TestCeiling
mkdir -p "$work/debs" "$work/root" "$work/iso"

# fetch URL SHA256
fetch() {
  local file=$work/${1##*/}
  [ -e "$file" ] || { curl -sSfL -o "$file.part" "$1" && mv "$file.part" "$file"; }
  echo "$2  $file" | sha256sum -c --quiet
}

# Bochs from source: Debian's own build has a window and a debugger, and no release knows
# XFD yet, without which Linux keeps AMX to itself. xfd.sh adds it and mends two faults in
# saving tiles.
if [ ! -x "$work/bochs/bochs" ]; then
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | awk '!/security/ && !m { m = $0 } END { print m }')
  fetch "${mirror%/}/pool/main/b/bochs"/bochs_3.0+dfsg.orig.tar.xz 78f6c73d4a6472d5130a87ab9dc306d02c7c71ed8e25b3a8ef642e2a7acd282b
  rm -rf "$work/bochs" && mkdir "$work/bochs"
  tar -xJf "$work/bochs_3.0+dfsg.orig.tar.xz" -C "$work/bochs" --strip-components=1
  (
    cd "$work/bochs"
    "$tools/xfd.sh" .
    CFLAGS=-O2 CXXFLAGS=-O2 ./configure --with-nogui --without-x --enable-cpu-level=6 --enable-x86-64 \
      --enable-avx --enable-evex --enable-amx --enable-all-optimizations --disable-docbook
    make -j"${JOBS:-1}" bochs
  ) >"$work/build.txt" 2>&1 || { tail "$work/build.txt"; exit 1; }
fi

# BIOS, boot loader, kernel and the program that writes the disc, unpacked, not installed.
if [ ! -e "$work/.unpacked" ]; then
  kernel=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
  (cd "$work/debs" && apt-get download -qq bochsbios vgabios isolinux syslinux-common genisoimage cpio "$kernel")
  for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/system"; done
  touch "$work/.unpacked"
fi
system=$work/system
cp "$system"/boot/vmlinuz-* "$work/iso/vmlinuz"
cp "$system/usr/lib/ISOLINUX/isolinux.bin" "$system/usr/lib/syslinux/modules/bios/ldlinux.c32" "$work/iso/"
# 580 is fsrm: Linux takes one of two fast ways to move memory from this processor, not both,
# and stumbles. The way back from the BIOS's SMM wants CR4 as it was at boot, hence no PCID
# and no 57-bit addresses.
cat >"$work/iso/isolinux.cfg" <<END
default test
label test
 kernel vmlinuz
 append initrd=initrd console=ttyS0,115200 clearcpuid=580 nopcid no5lvl panic=-1
END
cat >"$work/bochsrc" <<END
display_library: nogui
cpu: model=sapphire_rapids, count=1, ips=50000000, reset_on_triple_fault=0
memory: guest=1024, host=1024
romimage: file=$system/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=$system/usr/share/vgabios/vgabios.bin
boot: cdrom
ata0: enabled=1
ata0-master: type=cdrom, path=$work/disc.iso, status=inserted
com1: enabled=1, mode=file, dev=$work/serial.txt
log: $work/bochs.log
panic: action=fatal
error: action=report
info: action=ignore
clock: sync=none
END

export CGO_ENABLED=0
go test -c -ldflags='-s -w' -o "$work/root/test" "$package"
(cd "$tools/.." && go build -trimpath -ldflags='-s -w' -o "$work/root/init" ./amx-emulator/init)
echo "$*" >"$work/root/args"
(cd "$work/root" && find . | "$system/bin/cpio" -o -H newc --quiet >"$work/iso/initrd")
"$system/usr/bin/genisoimage" -quiet -o "$work/disc.iso" -b isolinux.bin -c boot.cat \
  -no-emul-boot -boot-load-size 4 -boot-info-table "$work/iso"

rm -f "$work/serial.txt"
# Bochs ends with status 1 when the machine is switched off this way.
timeout "${LIMIT:-3600}" "$work/bochs/bochs" -q -f "$work/bochsrc" >"$work/bochs.txt" 2>&1 </dev/null || true
[ -e "$work/serial.txt" ] || { echo "The machine printed nothing: see $work/bochs.log"; exit 1; }
sed -n '/^emulator:/,$p' "$work/serial.txt"
grep -q '^emulator: passed' "$work/serial.txt"
