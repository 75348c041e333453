from tapr.utils.amounts import counted, file_size


def test_numbers_have_the_form_of_their_noun() -> None:
    assert counted(1, "picture") == "1 picture"
    assert counted(0, "picture") == "0 pictures"
    assert counted(2000, "picture") == "2,000 pictures"
    assert counted(2, "query", "queries") == "2 queries"


def test_sizes_of_files_are_in_the_megabytes_of_the_limit() -> None:
    assert file_size(20 * 2**20) == "20 MB"
    assert file_size(int(23.8 * 2**20)) == "23.8 MB"
    assert file_size(1000) == "1,000 bytes"
