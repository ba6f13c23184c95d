#!/bin/sh
# Run by apt before dpkg changes packages, with the archives of the new versions on standard input.
# Files of the host have no owner in a box, and dpkg cannot give such a file a second name while it writes the new one.
# So root of the box first gets copies of the files of the old versions.
while read -r archive; do
    package=$(dpkg-deb --field "$archive" Package) || continue
    for list in "/var/lib/dpkg/info/$package.list" "/var/lib/dpkg/info/$package:"*.list; do
        [ -f "$list" ] || continue
        while read -r file; do
            { [ -f "$file" ] && [ ! -L "$file" ] && [ ! -O "$file" ]; } || continue
            cp --preserve=mode,timestamps -- "$file" "$file.box" && mv -f -- "$file.box" "$file"
        done <"$list"
    done
done
exit 0
