# Where packages come from. To be sourced; defines mirror_of.
# shellcheck shell=sh

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
