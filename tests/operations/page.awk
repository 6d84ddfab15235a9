# Takes OPERATIONS.md apart.
#   awk -f page.awk -v want=commands OPERATIONS.md       one line each: HOST TAB # or $ TAB COMMAND
#   awk -f page.awk -v want=toml -v number=2 OPERATIONS.md   the second block of that language
/^```./ { language = substr($0, 4); if (language == want) blocks++; next }
/^```/ { language = ""; next }
want == "commands" && language == "console" && match($0, /^[PSM][#$] /) {
    command = substr($0, 4)
    # What follows a command after two blanks is for the reader.
    sub(/  +# .*$/, "", command)
    print substr($0, 1, 1) "\t" substr($0, 2, 1) "\t" command
}
language == want && blocks == number { print }
