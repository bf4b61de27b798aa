! Like NAS CG: the least eigenvalue of a sparse symmetric matrix of random pattern, by the power method whose linear systems are
! solved by 25 steps of conjugate gradients.
!
!     cg ROWS NONZEROS_PER_ROW ITERATIONS
program cg
  implicit none
  integer, parameter :: steps = 25
  integer :: n, per_row, iterations, iteration
  integer, allocatable :: first(:), next(:), column(:)
  double precision, allocatable :: value(:), x(:), z(:), r(:), p(:), q(:)
  integer(8) :: state = 314159265_8
  double precision :: zeta

  n = argument(1, 7000)
  per_row = argument(2, 60)
  iterations = argument(3, 4)
  allocate (x(n), z(n), r(n), p(n), q(n))
  call make_matrix
  x = 1
  do iteration = 1, iterations
    call solve
    zeta = 20 + 1 / dot_product(x, z)
    x = z / sqrt(dot_product(z, z))
    print '(i4, es22.13)', iteration, zeta
  end do

contains

  integer function argument(place, default)
    integer, intent(in) :: place, default
    character(20) :: text
    argument = default
    if (command_argument_count() < place) return
    call get_command_argument(place, text)
    read (text, *) argument
  end function

  double precision function next_random()
    state = iand(state * 1220703125_8, 2_8**46 - 1)
    next_random = dble(state) / 2d0**46
  end function

  ! Pairs of equal entries at random places, and a diagonal that outweighs them.
  subroutine make_matrix
    integer :: pairs, k, i, j
    integer, allocatable :: row_of(:), column_of(:)
    pairs = n * ((per_row - 1) / 2)
    allocate (row_of(pairs), column_of(pairs), next(n), first(n + 1), column(2 * pairs + n), value(2 * pairs + n))
    next = 1
    do k = 1, pairs
      row_of(k) = 1 + int(next_random() * n)
      column_of(k) = 1 + int(next_random() * n)
      next(row_of(k)) = next(row_of(k)) + 1
      next(column_of(k)) = next(column_of(k)) + 1
    end do
    first(1) = 1
    do i = 1, n
      first(i + 1) = first(i) + next(i)
    end do
    next = first(1:n)
    do i = 1, n
      call put(i, i, per_row + 1d0)
    end do
    do k = 1, pairs
      i = row_of(k)
      j = column_of(k)
      call put(i, j, 0.5d0)
      call put(j, i, 0.5d0)
    end do
  end subroutine

  subroutine put(row, col, entry)
    integer, intent(in) :: row, col
    double precision, intent(in) :: entry
    column(next(row)) = col
    value(next(row)) = entry
    next(row) = next(row) + 1
  end subroutine

  subroutine multiply(a, b)
    double precision, intent(in) :: a(:)
    double precision, intent(out) :: b(:)
    integer :: i, k
    double precision :: sum
    do i = 1, n
      sum = 0
      do k = first(i), first(i + 1) - 1
        sum = sum + value(k) * a(column(k))
      end do
      b(i) = sum
    end do
  end subroutine

  ! z with matrix * z = x, nearly.
  subroutine solve
    integer :: step
    double precision :: alpha, rho, before
    z = 0
    r = x
    p = r
    rho = dot_product(r, r)
    do step = 1, steps
      call multiply(p, q)
      alpha = rho / dot_product(p, q)
      z = z + alpha * p
      r = r - alpha * q
      before = rho
      rho = dot_product(r, r)
      p = r + (rho / before) * p
    end do
  end subroutine
end program
