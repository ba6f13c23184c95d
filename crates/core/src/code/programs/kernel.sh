# Runs cells in one shell. Text goes straight to descriptors 1 and 2; where a cell begins and ends is written between the text, in
# frames. The shell reads this and every cell from its standard input, and is an interactive one: an interrupt ends what it
# does, and it goes on with the next line.
PS1= PS2= PROMPT_COMMAND=
__strongbox_nonce=$3
set --
unset HISTFILE
exec {__strongbox_out}>&1 {__strongbox_err}>&2
__strongbox_count=0 __strongbox_before=()
trap 'exit 143' TERM

__strongbox_frame() {
  builtin printf '\036%s%s%s %s\n' "$__strongbox_nonce" "$1" "$2" "$3" >&"$__strongbox_err"
  builtin printf '\036%s%s%s %s\n' "$__strongbox_nonce" "$1" "$2" "$3" >&"$__strongbox_out"
}

# The number of the cell, then NAME=value for it alone.
__strongbox_begin() {
  local __strongbox_number=$1 __strongbox_pair __strongbox_name
  __strongbox_count=$((__strongbox_count + 1)) __strongbox_before=()
  shift
  for __strongbox_pair in "$@"; do
    __strongbox_name=${__strongbox_pair%%=*}
    if [[ -n ${!__strongbox_name+set} ]]; then
      __strongbox_before+=("unset -v $__strongbox_name; $(declare -p "$__strongbox_name")")
    else
      __strongbox_before+=("unset -v $__strongbox_name")
    fi
    builtin export "$__strongbox_pair"
  done
  __strongbox_frame b "$__strongbox_number" "$__strongbox_count"
}

# The number of the cell, and what it returned.
__strongbox_end() {
  local __strongbox_line
  for __strongbox_line in "${__strongbox_before[@]}"; do
    builtin eval "${__strongbox_line/; declare -/; declare -g -}"
  done
  __strongbox_before=()
  __strongbox_frame e "$1" "$2"
}

__strongbox_frame b 0 0
