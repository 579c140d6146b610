package logs

const noFollow = 0
