-- Set schedules, seen to be due at _dues[k], back to _nexts[k], which the caller reckoned from stepwell.now(), where their next
-- tick lies beyond it, or where there is none: the clock was ahead when that was reckoned and has been set back. What was fired for a time still
-- to come is on record, and is not fired twice; nothing is set back to before what is still on record. Returns how many.
create or replace function stepwell.rewind_schedules(
  _ids uuid[],
  _versions integer[],
  _dues timestamptz[],
  _nexts timestamptz[]
) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _rewound integer;
begin
  with wrong as (
    select s.id, greatest(u.next, s.forgotten_until + interval '1 microsecond') as next
    from unnest(_ids, _versions, _dues, _nexts) as u (id, version, due, next)
    join stepwell.schedule s
      on s.id = u.id and s.version = u.version and s.next_tick_at is not distinct from u.due
    -- No schedule is due before or after these.
    where u.next >= '1970-01-01 00:00+00' and u.next < '9999-12-31 00:00+00' and s.paused_at is null
      and coalesce(s.next_tick_at > greatest(u.next, s.forgotten_until + interval '1 microsecond'), true)
    order by s.id
    for update of s skip locked
  )
  update stepwell.schedule s set next_tick_at = w.next from wrong w where s.id = w.id;
  get diagnostics _rewound = row_count;
  if _rewound > 0 then
    perform stepwell.notify('stepwell_tick', '');
  end if;
  return _rewound;
end
$$;
