def demand(args, programs, folder):
    return False
