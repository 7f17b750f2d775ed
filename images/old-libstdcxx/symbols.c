/* One symbol per version name of versions.map: the linker drops a version that holds none. */
#define LOOKALIKE(version) \
    void lookalike_##version(void); \
    void lookalike_##version(void) {}

LOOKALIKE(3_4)
LOOKALIKE(3_4_9)
LOOKALIKE(3_4_19)
LOOKALIKE(3_4_21)
LOOKALIKE(3_4_25)
LOOKALIKE(3_4_26)
LOOKALIKE(3_4_27)
LOOKALIKE(3_4_28)
LOOKALIKE(abi_1_3)
LOOKALIKE(abi_1_3_11)
LOOKALIKE(abi_1_3_12)
