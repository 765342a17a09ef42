#!/usr/bin/env bash
# Teaches the sources of Bochs 3.0 below the folder $1 Extended Feature Disable, without
# which Linux lends no tiles: the bits of CPUID that announce it, IA32_XFD and
# IA32_XFD_ERR, and #NM where a tile is used that the system has not lent to the thread.
# It also mends two faults of saving state: rows and bytes per row of the configuration
# were swapped, and tiles in use were said to be unused.
set -euo pipefail
cd "$1/cpu"

# after FILE LINE: standard input becomes the lines behind LINE. From the end of a file to
# its beginning, so that the numbers are those of the release.
after() { sed -i "$2r /dev/stdin" "$1"; }

sed -i '1142s/rows/bytes_per_row/; 1143s/bytes_per_row/rows/; 1203s/== 0/!= 0/; 1203s/all/else all/' xsave.cc
after xsave.cc 1202 <<'END'
  if (BX_CPU_THIS_PTR msr.ia32_xfd & BX_XCR0_XTILEDATA_MASK)
    return false;
END

after avx/amx.cc 211 <<'END'
  check_xfd();

END
after avx/amx.cc 209 <<'END'
void BX_CPU_C::check_xfd()
{
  if (BX_CPU_THIS_PTR msr.ia32_xfd & BX_XCR0_XTILEDATA_MASK) {
    BX_CPU_THIS_PTR msr.ia32_xfd_err |= BX_XCR0_XTILEDATA_MASK;
    exception(BX_NM_EXCEPTION, 0);
  }
}

END
after avx/amx.cc 191 <<'END'
  check_xfd();

END
after cpu.h 4843 <<'END'
  BX_SMF void check_xfd(void);
END
after cpu.h 672 <<'END'
  Bit64u ia32_xfd, ia32_xfd_err;
END
after init.cc 1057 <<'END'
  BX_CPU_THIS_PTR msr.ia32_xfd = BX_CPU_THIS_PTR msr.ia32_xfd_err = 0;
END

after cpuid.cc 262 <<'END'
      if (subfunction == xcr0_t::BX_XCR0_XTILEDATA_BIT)
        leaf->ecx |= (1<<2);
END
after cpuid.cc 238 <<'END'
    if (is_cpu_extension_supported(BX_ISA_AMX))
      leaf->eax |= (1<<4);
END

after msr.cc 971 <<'END'

    case BX_MSR_IA32_XFD:
    case BX_MSR_IA32_XFD_ERROR:
      if (val_64 & ~Bit64u(BX_XCR0_XTILEDATA_MASK))
        return false;
      if (index == BX_MSR_IA32_XFD)
        BX_CPU_THIS_PTR msr.ia32_xfd = val_64;
      else
        BX_CPU_THIS_PTR msr.ia32_xfd_err = val_64;
      break;
END
after msr.cc 344 <<'END'

    case BX_MSR_IA32_XFD:
      val64 = BX_CPU_THIS_PTR msr.ia32_xfd;
      break;

    case BX_MSR_IA32_XFD_ERROR:
      val64 = BX_CPU_THIS_PTR msr.ia32_xfd_err;
      break;
END
after msr.cc 112 <<'END'
  msr_desc[BX_MSR_IA32_XFD] = new MSR_Descriptor("MSR_IA32_XFD", BX_ISA_AMX);
  msr_desc[BX_MSR_IA32_XFD_ERROR] = new MSR_Descriptor("MSR_IA32_XFD_ERR", BX_ISA_AMX);
END
