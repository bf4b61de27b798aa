! Like NAS SP: steps of a flow whose implicit part is solved along lines, one direction after the other: five scalar systems of
! five diagonals each, for waves that go with the flow and with sound.
!
!     sp POINTS STEPS
program sp
  use flow
  implicit none
  double precision, parameter :: fourth = 0.02d0
  integer :: round, j, k
  double precision, allocatable :: line(:, :), right(:, :), speed(:, :), by_one(:), by_two(:)

  call begin(argument(1, 24))
  allocate (line(5, 0:n + 1), right(5, 0:n + 1), speed(5, 0:n + 1), by_one(-1:n), by_two(-1:n))
  do round = 1, argument(2, 10)
    call find_change
    do k = 1, n
      do j = 1, n
        line = u(:, :, j, k)
        right = change(:, :, j, k)
        call solve(1)
        change(:, 1:n, j, k) = right(:, 1:n)
      end do
    end do
    do k = 1, n
      do j = 1, n
        line = u(:, j, :, k)
        right = change(:, j, :, k)
        call solve(2)
        change(:, j, 1:n, k) = right(:, 1:n)
      end do
    end do
    do k = 1, n
      do j = 1, n
        line = u(:, j, k, :)
        right = change(:, j, k, :)
        call solve(3)
        change(:, j, k, 1:n) = right(:, 1:n)
      end do
    end do
    call add_change
  end do

contains

  subroutine solve(d)
    integer, intent(in) :: d
    integer :: i, c
    double precision :: sound
    do i = 0, n + 1
      sound = sqrt(gamma * pressure(line(:, i)) / line(1, i))
      speed(:, i) = line(1 + d, i) / line(1, i)
      speed(4, i) = speed(4, i) + sound
      speed(5, i) = speed(5, i) - sound
    end do
    do c = 1, 5
      call diagonals(c)
    end do
  end subroutine

  ! Elimination downwards leaves two diagonals above a unit one, then upwards.
  subroutine diagonals(c)
    integer, intent(in) :: c
    integer :: i
    double precision :: below, middle, factor, before, before_last
    by_one = 0
    by_two = 0
    before = 0
    before_last = 0
    do i = 1, n
      below = -step / (2 * h) * speed(c, i - 1) - smoothing - 4 * fourth
      below = below - fourth * by_one(i - 2)
      middle = 1 + 2 * smoothing + 6 * fourth - fourth * by_two(i - 2) - below * by_one(i - 1)
      factor = 1 / middle
      by_one(i) = (step / (2 * h) * speed(c, i + 1) - smoothing - 4 * fourth - below * by_two(i - 1)) * factor
      by_two(i) = fourth * factor
      right(c, i) = (right(c, i) - fourth * before_last - below * before) * factor
      before_last = before
      before = right(c, i)
    end do
    right(c, n - 1) = right(c, n - 1) - by_one(n - 1) * right(c, n)
    do i = n - 2, 1, -1
      right(c, i) = right(c, i) - by_one(i) * right(c, i + 1) - by_two(i) * right(c, i + 2)
    end do
  end subroutine
end program
