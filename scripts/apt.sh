# Where packages come from, and apt on lists and folders of its own: the system's configuration and lists stay as they are, and
# nothing is installed. To be sourced; `private` and `private_suites` need $work (a temporary folder) and $log (a file).
# shellcheck shell=sh disable=SC2154

# Prints the address of a mirror of debian or ubuntu ($1): DEBIAN_MIRROR or UBUNTU_MIRROR where it is
# set, else the one that this machine's apt is configured with. Fails if there is none.
mirror_of() {
    case $1 in
        debian) asked=${DEBIAN_MIRROR-} ;;
        ubuntu) asked=${UBUNTU_MIRROR-} ;;
    esac
    [ -z "$asked" ] || { echo "$asked"; return; }
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        grep -m 1 "/$1/*\$"
}

# What proves that a list is Debian's.
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# Runs apt-get or apt-cache ($1) privately, for Debian architecture $private_arch [default: this
# machine's].
private() {
    tool=$1
    shift
    arch=${private_arch:-$(dpkg --print-architecture)}
    "$tool" -qq -o APT::Sandbox::User="$(id -un)" \
        -o APT::Architecture="$arch" -o APT::Architectures="$arch" \
        -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/nonexistent \
        -o Dir::Etc::Preferences="$work/none" -o Dir::Etc::PreferencesParts="$work/none.d" \
        -o Dir::State::Lists="$work/lists" -o Dir::State::status=/dev/null \
        -o Dir::Cache="$work/cache" "$@"
}

# Reads the lists of the suites $2 ... of $mirror; $1 is deb or deb-src.
private_suites() {
    kind=$1
    shift
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/none.d"
    for suite; do
        echo "$kind [signed-by=$KEYRING] $mirror $suite main"
    done >"$work/sources.list"
    private apt-get update >>"$log" 2>&1
}
