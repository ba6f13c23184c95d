# Copies what a COPY step names from where its files were put to where they belong. Arguments: that directory, what, where to, whose
# it is to be, and its mode or nothing.
set -e
shopt -s nullglob dotglob globstar
from=$1 what=$2 to=$3 owner=$4 mode=$5

# Makes a directory; it and what is missing above it belong to the owner.
make() {
  [ ! -d "$1" ] || return 0
  local top=$1 above
  while above=$(dirname -- "$top"); [ ! -e "$above" ]; do top=$above; done
  mkdir -p -- "$1"
  chown -R -- "$owner" "$top"
}

cd -- "$from"
if [ -e "$what" ] || [ -L "$what" ]; then
  found=("$what")
else
  IFS=
  # shellcheck disable=SC2206 # it is a pattern
  found=($what)
fi
if [ ${#found[@]} -eq 0 ]; then
  echo "COPY: there is no $what among the files that were uploaded" >&2
  exit 1
fi
chown -R -h -- "$owner" .
[ -z "$mode" ] || find . -type f -exec chmod -- "$mode" {} +
for one in "${found[@]}"; do
  if [ -d "$one" ] && [ ! -L "$one" ]; then
    make "$to"
    for inside in "$one"/*; do cp -a -- "$inside" "$to/"; done
  elif [ "${to%/}" != "$to" ] || [ -d "$to" ] || [ ${#found[@]} -gt 1 ]; then
    make "$to"
    cp -a -- "$one" "$to/"
  else
    make "$(dirname -- "$to")"
    cp -a -- "$one" "$to"
  fi
done
